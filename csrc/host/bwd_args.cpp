// The arguments of backward kernels, by op, mode and feature.
#include "bwd_args.hpp"

namespace flash_attn_rocm {
namespace {

using Args = std::vector<Arg>;

const Args kCommon = {
    Arg::q_ptr,           Arg::k_ptr,           Arg::v_ptr,          Arg::do_ptr,         Arg::lse_ptr,
    Arg::d_ptr,           Arg::dq_acc_ptr,      Arg::dk_ptr,         Arg::dv_ptr,         Arg::seqlen_q,
    Arg::seqlen_k,        Arg::hdim_q,          Arg::hdim_v,         Arg::num_head_q,     Arg::nhead_ratio_qk,
    Arg::raw_scale,       Arg::scale,           Arg::stride_q,       Arg::stride_k,       Arg::stride_v,
    Arg::stride_do,       Arg::stride_dq_acc,   Arg::stride_dk,      Arg::stride_dv,      Arg::nhead_stride_q,
    Arg::nhead_stride_k,  Arg::nhead_stride_v,  Arg::nhead_stride_do, Arg::nhead_stride_lsed,
    Arg::nhead_stride_dk, Arg::nhead_stride_dv, Arg::nhead_stride_dq_acc,
};
const Args kBatch   = {Arg::batch_stride_q,  Arg::batch_stride_k,  Arg::batch_stride_v,    Arg::batch_stride_do,
                       Arg::batch_stride_dk, Arg::batch_stride_dv, Arg::batch_stride_lsed, Arg::batch_stride_dq_acc};
const Args kGroup   = {Arg::seqstart_q_ptr, Arg::seqstart_k_ptr, Arg::seqlen_q_ptr, Arg::seqlen_k_ptr};
const Args kMask    = {Arg::window_size_left, Arg::window_size_right, Arg::mask_type};
const Args kAlibi   = {Arg::alibi_slope_ptr, Arg::alibi_slope_stride};
const Args kDropout = {Arg::rp_undrop, Arg::scale_rp_undrop, Arg::p_undrop_in_uint8_t, Arg::drop_seed,
                       Arg::drop_offset, Arg::is_drop_seed_offset_from_host};
const Args kOrdered = {Arg::split_stride_dq_acc};
const Args kDot     = {Arg::o_ptr, Arg::do_ptr, Arg::d_ptr, Arg::seqstart_q_ptr, Arg::hdim_v, Arg::p_undrop};
const Args kSum     = {Arg::parts_ptr, Arg::sum_ptr,    Arg::seqstart_q_ptr, Arg::seqstart_k_ptr,
                       Arg::hdim_q,    Arg::num_splits, Arg::keys_per_split, Arg::split_stride_parts};

void append(Args& args, const Args& more, bool wanted)
{
    if(wanted)
    {
        args.insert(args.end(), more.begin(), more.end());
    }
}

} // namespace

std::vector<Arg> bwd_args(const KernelInfo& kernel)
{
    Args args;
    append(args, kDot, kernel.op == "bwd_dot");
    append(args, kSum, kernel.op == "bwd_sum_keys" || kernel.op == "bwd_sum_heads");
    if(kernel.op != "fmha_bwd")
    {
        return args;
    }
    append(args, kCommon, true);
    append(args, kBatch, kernel.mode == "batch");
    append(args, kGroup, kernel.mode == "group");
    append(args, kMask, kernel.mask);
    append(args, kAlibi, kernel.bias == "alibi");
    append(args, kDropout, kernel.dropout);
    append(args, kOrdered, kernel.deterministic);
    return args;
}

} // namespace flash_attn_rocm
