// The arguments of kernels by op, mode and feature: CK's attention kernels, and our own kernels around them.
#include "required_args.hpp"

#include <initializer_list>
#include <utility>

namespace flash_attn_rocm {
namespace {

using Args = std::initializer_list<Arg>;

constexpr Args kForward = {
    Arg::q_ptr,          Arg::k_ptr,          Arg::v_ptr,          Arg::o_ptr,          Arg::lse_ptr,
    Arg::seqlen_q,       Arg::seqlen_k,       Arg::hdim_q,         Arg::hdim_v,         Arg::num_head_q,
    Arg::nhead_ratio_qk, Arg::scale_s,        Arg::stride_q,       Arg::stride_k,       Arg::stride_v,
    Arg::stride_o,       Arg::nhead_stride_q, Arg::nhead_stride_k, Arg::nhead_stride_v, Arg::nhead_stride_o,
    Arg::nhead_stride_lse,
};
constexpr Args kForwardBatch = {Arg::batch_stride_q, Arg::batch_stride_k, Arg::batch_stride_v, Arg::batch_stride_o,
                                Arg::batch_stride_lse};
constexpr Args kForwardGroup = {Arg::seqstart_q_ptr, Arg::seqstart_k_ptr, Arg::seqlen_k_ptr};
constexpr Args kForwardDropout = {Arg::rand_val_ptr, Arg::is_store_randval, Arg::stride_randval,
                                  Arg::nhead_stride_randval};
constexpr Args kForwardDropoutBatch = {Arg::batch_stride_randval};

constexpr Args kSplit = {
    Arg::q_ptr,          Arg::k_ptr,          Arg::v_ptr,          Arg::o_acc_ptr,           Arg::lse_acc_ptr,
    Arg::seqlen_q,       Arg::seqlen_k,       Arg::hdim_q,         Arg::hdim_v,              Arg::num_head_q,
    Arg::nhead_ratio_qk, Arg::scale_s,        Arg::num_splits,     Arg::stride_q,            Arg::stride_k,
    Arg::stride_v,       Arg::stride_o_acc,   Arg::nhead_stride_q, Arg::nhead_stride_k,      Arg::nhead_stride_v,
    Arg::nhead_stride_o_acc, Arg::nhead_stride_lse_acc, Arg::split_stride_o_acc, Arg::split_stride_lse_acc,
    Arg::seqstart_q_ptr, Arg::seqstart_k_ptr, Arg::seqlen_k_ptr,
};
constexpr Args kSplitPages = {Arg::block_table_ptr, Arg::batch_stride_block_table, Arg::page_block_size, Arg::is_gappy,
                              Arg::batch_stride_k,  Arg::batch_stride_v};

constexpr Args kBackward = {
    Arg::q_ptr,           Arg::k_ptr,           Arg::v_ptr,           Arg::do_ptr,         Arg::lse_ptr,
    Arg::d_ptr,           Arg::dq_acc_ptr,      Arg::dk_ptr,          Arg::dv_ptr,         Arg::seqlen_q,
    Arg::seqlen_k,        Arg::hdim_q,          Arg::hdim_v,          Arg::num_head_q,     Arg::nhead_ratio_qk,
    Arg::raw_scale,       Arg::scale,           Arg::stride_q,        Arg::stride_k,       Arg::stride_v,
    Arg::stride_do,       Arg::stride_dq_acc,   Arg::stride_dk,       Arg::stride_dv,      Arg::nhead_stride_q,
    Arg::nhead_stride_k,  Arg::nhead_stride_v,  Arg::nhead_stride_do, Arg::nhead_stride_lsed,
    Arg::nhead_stride_dk, Arg::nhead_stride_dv, Arg::nhead_stride_dq_acc,
};
constexpr Args kBackwardBatch = {Arg::batch_stride_q,  Arg::batch_stride_k,  Arg::batch_stride_v,
                                 Arg::batch_stride_do, Arg::batch_stride_dk, Arg::batch_stride_dv,
                                 Arg::batch_stride_lsed, Arg::batch_stride_dq_acc};
constexpr Args kBackwardGroup   = {Arg::seqstart_q_ptr, Arg::seqstart_k_ptr, Arg::seqlen_q_ptr, Arg::seqlen_k_ptr};
constexpr Args kBackwardDropout = {Arg::scale_rp_undrop};
constexpr Args kBackwardOrdered = {Arg::split_stride_dq_acc};

// Of all attention kernels.
constexpr Args kMask    = {Arg::window_size_left, Arg::window_size_right, Arg::mask_type};
constexpr Args kAlibi   = {Arg::alibi_slope_ptr, Arg::alibi_slope_stride};
constexpr Args kSoftcap = {Arg::logits_soft_cap, Arg::logits_soft_cap_rcp};
constexpr Args kDropout = {Arg::rp_undrop, Arg::p_undrop_in_uint8_t, Arg::drop_seed, Arg::drop_offset,
                           Arg::is_drop_seed_offset_from_host};

// Our own kernels use all of their arguments (csrc/device).
constexpr Args kCombine = {
    Arg::lse_acc_ptr,        Arg::o_acc_ptr,        Arg::o_ptr,                Arg::lse_ptr,
    Arg::seqstart_q_ptr,     Arg::seqlen_q,         Arg::hdim_v,               Arg::num_splits,
    Arg::stride_o_acc,       Arg::stride_o,         Arg::split_stride_lse_acc, Arg::split_stride_o_acc,
    Arg::nhead_stride_lse_acc, Arg::nhead_stride_o_acc, Arg::nhead_stride_lse, Arg::nhead_stride_o,
    Arg::batch_stride_lse_acc, Arg::batch_stride_o_acc, Arg::batch_stride_lse, Arg::batch_stride_o,
};
constexpr Args kPrepare = {
    Arg::q_ptr,              Arg::q_out_ptr,           Arg::knew_ptr,           Arg::vnew_ptr,
    Arg::k_ptr,              Arg::v_ptr,               Arg::rotary_cos_ptr,     Arg::rotary_sin_ptr,
    Arg::cache_seqlens_ptr,  Arg::cache_batch_idx_ptr, Arg::cache_leftpad_ptr,  Arg::block_table_ptr,
    Arg::seqstart_q_out_ptr, Arg::seqstart_k_out_ptr,  Arg::seqlen_k_out_ptr,   Arg::stride_q,
    Arg::nhead_stride_q,     Arg::batch_stride_q,      Arg::stride_out,         Arg::nhead_stride_out,
    Arg::stride_knew,        Arg::nhead_stride_knew,   Arg::batch_stride_knew,  Arg::stride_vnew,
    Arg::nhead_stride_vnew,  Arg::batch_stride_vnew,   Arg::stride_k,           Arg::nhead_stride_k,
    Arg::batch_stride_k,     Arg::stride_v,            Arg::nhead_stride_v,     Arg::batch_stride_v,
    Arg::batch_stride_block_table, Arg::rows_per_batch, Arg::batch,             Arg::seqlen_q,
    Arg::seqlen_k,           Arg::seqlen_knew,         Arg::num_head_q,         Arg::num_head_k,
    Arg::hdim_q,             Arg::cache_batches,       Arg::num_pages,          Arg::page_block_size,
    Arg::rotary_dim,         Arg::rotary_seqlen,       Arg::group_heads,        Arg::is_rotary_interleaved,
    Arg::is_rotary_per_row,
};
constexpr Args kDot = {
    Arg::o_ptr,          Arg::do_ptr,          Arg::d_ptr,          Arg::seqstart_q_ptr,  Arg::stride_o,
    Arg::stride_do,      Arg::nhead_stride_o,  Arg::nhead_stride_do, Arg::nhead_stride_d, Arg::batch_stride_o,
    Arg::batch_stride_do, Arg::batch_stride_d, Arg::seqlen_q,       Arg::hdim_v,          Arg::p_undrop,
};
constexpr Args kSum = {
    Arg::parts_ptr,          Arg::sum_ptr,            Arg::seqstart_q_ptr,   Arg::seqstart_k_ptr,
    Arg::stride_parts,       Arg::stride_sum,         Arg::nhead_stride_parts, Arg::nhead_stride_sum,
    Arg::batch_stride_parts, Arg::batch_stride_sum,   Arg::split_stride_parts, Arg::seqlen_q,
    Arg::seqlen_k,           Arg::hdim_q,             Arg::num_splits,         Arg::keys_per_split,
};

class ArgList
{
public:
    void add(Args more, bool wanted = true)
    {
        if(wanted)
        {
            args_.insert(args_.end(), more.begin(), more.end());
        }
    }

    std::vector<Arg> take() { return std::move(args_); }

private:
    std::vector<Arg> args_;
};

void add_features(ArgList& list, const KernelInfo& kernel)
{
    list.add(kMask, kernel.mask);
    list.add(kAlibi, kernel.bias == "alibi");
    list.add(kSoftcap, kernel.softcap);
    list.add(kDropout, kernel.dropout);
}

} // namespace

std::vector<Arg> required_args(const KernelInfo& kernel)
{
    const bool batch = kernel.mode == "batch";
    ArgList list;
    if(kernel.op == "fmha_fwd")
    {
        list.add(kForward);
        list.add(batch ? kForwardBatch : kForwardGroup);
        add_features(list, kernel);
        list.add(kForwardDropout, kernel.dropout);
        list.add(kForwardDropoutBatch, kernel.dropout && batch);
    }
    else if(kernel.op == "fmha_fwd_splitkv")
    {
        list.add(kSplit);
        list.add(kSplitPages, kernel.page > 0);
        add_features(list, kernel);
    }
    else if(kernel.op == "fmha_bwd")
    {
        list.add(kBackward);
        list.add(batch ? kBackwardBatch : kBackwardGroup);
        add_features(list, kernel);
        list.add(kBackwardDropout, kernel.dropout);
        list.add(kBackwardOrdered, kernel.deterministic);
    }
    list.add(kCombine, kernel.op == "split_combine");
    list.add(kPrepare, kernel.op == "kv_prepare");
    list.add(kDot, kernel.op == "bwd_dot");
    list.add(kSum, kernel.op == "bwd_sum_keys" || kernel.op == "bwd_sum_heads");
    return list.take();
}

} // namespace flash_attn_rocm
