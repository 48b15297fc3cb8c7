// Checks rows of kernels.json: a wrong slot or tile would not fail at the launch, it would compute wrong numbers.
#include "manifest_checks.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

#include "bwd_args.hpp"

namespace flash_attn_rocm {
namespace {

// Bounds that no AMD GPU exceeds; they keep sizes computed from these fields within range.
constexpr std::int64_t kMaxExtent        = 4096; // of a tile or head dim
constexpr std::uint32_t kMaxBlockThreads = 1024;
constexpr std::uint32_t kMaxKargsBytes   = 4096;

constexpr Arg kAttentionArgs[] = {
    Arg::q_ptr,    Arg::k_ptr,    Arg::v_ptr,          Arg::seqlen_q,       Arg::seqlen_k,       Arg::hdim_q,
    Arg::hdim_v,   Arg::num_head_q, Arg::nhead_ratio_qk, Arg::scale_s,      Arg::stride_q,       Arg::stride_k,
    Arg::stride_v, Arg::nhead_stride_q, Arg::nhead_stride_k, Arg::nhead_stride_v,
};
constexpr Arg kForwardArgs[] = {Arg::o_ptr, Arg::stride_o, Arg::nhead_stride_o, Arg::lse_ptr, Arg::nhead_stride_lse};
constexpr Arg kSplitArgs[]   = {Arg::o_acc_ptr,          Arg::lse_acc_ptr,          Arg::num_splits,
                                Arg::stride_o_acc,       Arg::nhead_stride_o_acc,   Arg::nhead_stride_lse_acc,
                                Arg::split_stride_o_acc, Arg::split_stride_lse_acc};
constexpr Arg kPageArgs[]    = {Arg::block_table_ptr, Arg::batch_stride_block_table, Arg::page_block_size, Arg::is_gappy,
                                Arg::batch_stride_k,  Arg::batch_stride_v};
constexpr Arg kCombineArgs[] = {Arg::o_acc_ptr, Arg::lse_acc_ptr, Arg::o_ptr,    Arg::lse_ptr, Arg::seqstart_q_ptr,
                                Arg::seqlen_q,  Arg::hdim_v,      Arg::num_splits, Arg::stride_o};
constexpr Arg kBatchArgs[]   = {Arg::batch_stride_q, Arg::batch_stride_k, Arg::batch_stride_v, Arg::batch_stride_o,
                                Arg::batch_stride_lse};
constexpr Arg kGroupArgs[]   = {Arg::seqstart_q_ptr, Arg::seqstart_k_ptr, Arg::seqlen_k_ptr};
constexpr Arg kMaskArgs[]    = {Arg::window_size_left, Arg::window_size_right, Arg::mask_type};
constexpr Arg kAlibiArgs[]   = {Arg::alibi_slope_ptr, Arg::alibi_slope_stride};
constexpr Arg kSoftcapArgs[] = {Arg::logits_soft_cap, Arg::logits_soft_cap_rcp};
constexpr Arg kDropoutArgs[] = {Arg::rp_undrop,      Arg::p_undrop_in_uint8_t, Arg::drop_seed,      Arg::drop_offset,
                                Arg::rand_val_ptr,   Arg::is_store_randval,    Arg::stride_randval, Arg::nhead_stride_randval,
                                Arg::is_drop_seed_offset_from_host};

template <class Args>
void require(const JsonReader& reader, const KernelInfo& kernel, const Args& args)
{
    for(const Arg arg : args)
    {
        if(kernel.args[static_cast<std::size_t>(arg)].size == 0)
        {
            reader.reject("argument '", arg_name(arg), "' is missing, which such a kernel needs");
        }
    }
}

void check_features(const JsonReader& reader, const KernelInfo& kernel)
{
    if(kernel.mask)
    {
        require(reader, kernel, kMaskArgs);
    }
    if(kernel.bias == "alibi")
    {
        require(reader, kernel, kAlibiArgs);
    }
    if(kernel.softcap)
    {
        require(reader, kernel, kSoftcapArgs);
    }
    if(kernel.dropout)
    {
        require(reader, kernel, kDropoutArgs);
    }
}

void check_presence(const JsonReader& reader, const KernelInfo& kernel)
{
    if(kernel.op == "fmha_fwd" && (kernel.mode == "batch" || kernel.mode == "group"))
    {
        require(reader, kernel, kAttentionArgs);
        require(reader, kernel, kForwardArgs);
        if(kernel.mode == "batch")
        {
            require(reader, kernel, kBatchArgs);
        }
        else
        {
            require(reader, kernel, kGroupArgs);
        }
        check_features(reader, kernel);
    }
    if(kernel.op == "fmha_fwd_splitkv" && kernel.mode == "group")
    {
        require(reader, kernel, kAttentionArgs);
        require(reader, kernel, kSplitArgs);
        require(reader, kernel, kGroupArgs);
        if(kernel.page > 0)
        {
            require(reader, kernel, kPageArgs);
        }
        check_features(reader, kernel);
    }
    if(kernel.op == "split_combine")
    {
        require(reader, kernel, kCombineArgs);
    }
    require(reader, kernel, bwd_args(kernel));
}

bool size_fits(std::string_view name, std::uint32_t size)
{
    if(name.ends_with("_ptr"))
    {
        return size == 8;
    }
    if(name.starts_with("scale_") || name.starts_with("logits_soft_cap") || name == "rp_undrop" || name == "scale" ||
       name == "raw_scale" || name == "p_undrop")
    {
        return size == 4; // float
    }
    const bool byte = name.starts_with("p_undrop") || name.starts_with("is_");
    return size == 4 || size == 8 || (byte && size == 1);
}

void check_slots(const JsonReader& reader, const KernelInfo& kernel)
{
    std::vector<Arg> present;
    for(std::size_t i = 0; i < kArgCount; ++i)
    {
        const ArgSlot slot = kernel.args[i];
        if(slot.size == 0)
        {
            continue;
        }
        const auto arg = static_cast<Arg>(i);
        if(!size_fits(arg_name(arg), slot.size) || slot.offset % slot.size != 0)
        {
            reader.reject("argument '", arg_name(arg), "' is [", slot.offset, ",", slot.size,
                          "]; expected a size that suits it and an offset that is a multiple of the size");
        }
        present.push_back(arg);
    }
    const auto slot_of = [&kernel](Arg arg) { return kernel.args[static_cast<std::size_t>(arg)]; };
    std::sort(present.begin(), present.end(), [&](Arg a, Arg b) { return slot_of(a).offset < slot_of(b).offset; });
    for(std::size_t i = 1; i < present.size(); ++i)
    {
        const ArgSlot before = slot_of(present[i - 1]);
        if(before.offset + before.size > slot_of(present[i]).offset)
        {
            reader.reject("arguments '", arg_name(present[i - 1]), "' and '", arg_name(present[i]), "' overlap");
        }
    }
}

} // namespace

void check_kernel(const JsonReader& reader, const KernelInfo& kernel, int wave_size)
{
    const std::pair<const char*, std::int64_t> extents[] = {
        {"tile_m", kernel.tile_m}, {"tile_n", kernel.tile_n}, {"hdim_q", kernel.hdim_q}, {"hdim_v", kernel.hdim_v}};
    for(const auto& [name, value] : extents)
    {
        if(value < 1 || value > kMaxExtent)
        {
            reader.reject(name, " is ", value, "; allowed: 1 to ", kMaxExtent);
        }
    }
    const std::uint32_t threads = kernel.block_threads;
    if(threads == 0 || threads > kMaxBlockThreads || threads % static_cast<std::uint32_t>(wave_size) != 0)
    {
        reader.reject("block_threads is ", threads, "; allowed: multiples of wave_size ", wave_size, " up to ",
                      kMaxBlockThreads);
    }
    if(kernel.kargs_bytes > kMaxKargsBytes)
    {
        reader.reject("kargs_bytes is ", kernel.kargs_bytes, "; allowed: up to ", kMaxKargsBytes);
    }
    check_presence(reader, kernel);
    check_slots(reader, kernel);
}

bool plain_file_name(const std::string& name)
{
    // Separators and drives of every platform: packages are made on one and read on another.
    return !name.empty() && name != "." && name != ".." &&
           name.find_first_of(std::string_view("/\\:\0", 4)) == std::string::npos;
}

} // namespace flash_attn_rocm
