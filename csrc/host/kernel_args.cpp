// Packs argument values into the buffer a kernel is launched with, and knows what CK's attention kernels, forward,
// split-KV and backward, expect.
#include "kernel_args.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

#include "dispatch.hpp"
#include "error.hpp"

namespace flash_attn_rocm {
namespace {

// CK's mask_type for masks aligned at the bottom right corner of the score matrix. A kernel with mask and ALiBi must not
// get 0 ("no mask"), which flips the sign of the slopes.
constexpr std::int64_t kMaskBottomRight = 2;
constexpr std::int64_t kNoMask          = 0;

template <class T>
void store(std::byte* field, T value)
{
    std::memcpy(field, &value, sizeof(T));
}

void store_integer(const KernelInfo& kernel, Arg arg, std::byte* field, std::uint32_t size, std::int64_t value)
{
    const bool fits_int32 = value >= std::numeric_limits<std::int32_t>::min() &&
                            value <= std::numeric_limits<std::int32_t>::max();
    const bool fits_byte = value >= 0 && value <= 255;
    if((size == 4 && !fits_int32) || (size == 1 && !fits_byte))
    {
        fail(kernel.name, ": argument ", arg_name(arg), " is ", value, ", which does not fit its ", 8 * size,
             "-bit field. Split the heads or the batch into several calls");
    }
    switch(size)
    {
    case 8: store(field, value); return;
    case 4: store(field, static_cast<std::int32_t>(value)); return;
    case 1: store(field, static_cast<std::uint8_t>(value)); return;
    default: fail(kernel.name, ": argument ", arg_name(arg), " has ", size, " bytes; expected 1, 4 or 8");
    }
}

} // namespace

std::vector<std::byte> pack_args(const KernelInfo& kernel, const ArgValues& values)
{
    std::vector<std::byte> buffer(kernel.kargs_bytes);
    for(const Arg arg : kernel.present)
    {
        const ArgSlot slot    = kernel.args[static_cast<std::size_t>(arg)];
        std::byte* field      = buffer.data() + slot.offset;
        const ArgValue& value = values.get(arg);
        if(const auto* integer = std::get_if<std::int64_t>(&value))
        {
            store_integer(kernel, arg, field, slot.size, *integer);
        }
        else if(const auto* pointer = std::get_if<const void*>(&value); pointer != nullptr && slot.size == 8)
        {
            store(field, *pointer);
        }
        else if(const auto* number = std::get_if<float>(&value); number != nullptr && slot.size == 4)
        {
            store(field, *number);
        }
        else
        {
            fail(kernel.name, ": argument ", arg_name(arg), " (", slot.size, " bytes) has no value of that size. ",
                 "This library and the kernels do not fit together: conda update flash-attn-rocm");
        }
    }
    return buffer;
}

namespace {

constexpr const void* kNull = nullptr;

// A bound beyond every length hides nothing. With ALiBi, an unbounded left side together with right = 0 would choose
// CK's other form of the bias, whose scores differ by a constant per row, and so would the LSE.
std::int64_t left_bound(const FwdRequest& request, const Window& window)
{
    const bool unbounded = window.left < 0 && request.alibi_slopes != nullptr;
    return unbounded ? std::max(request.seqlen_q, request.seqlen_k) : window.left;
}

void set_features(ArgValues& values, const FwdRequest& request)
{
    const Window window = clamp_window(request);
    values.set(Arg::window_size_left, left_bound(request, window));
    values.set(Arg::window_size_right, window.right);
    values.set(Arg::mask_type, window.bounded() || request.alibi_slopes != nullptr ? kMaskBottomRight : kNoMask);

    values.set(Arg::alibi_slope_stride, request.alibi_batch_stride);
    values.set(Arg::logits_soft_cap, static_cast<float>(request.softcap));
    values.set(Arg::logits_soft_cap_rcp, static_cast<float>(request.softcap > 0 ? 1.0 / request.softcap : 0.0));

    const Dropout& dropout = request.dropout;
    const auto* seed       = static_cast<const std::int64_t*>(dropout.rng_state);
    values.set(Arg::drop_seed, static_cast<const void*>(seed));
    values.set(Arg::drop_offset, static_cast<const void*>(seed == nullptr ? nullptr : seed + 1));
    values.set(Arg::is_drop_seed_offset_from_host, std::int64_t{0});
    // A weight is kept iff its random byte is at most this; CK scales by the probability that was asked for.
    values.set(Arg::p_undrop_in_uint8_t, static_cast<std::int64_t>(std::floor((1.0 - dropout.p) * 255.0)));
    values.set(Arg::rp_undrop, static_cast<float>(1.0 / (1.0 - dropout.p)));
    values.set(Arg::is_store_randval, std::int64_t{dropout.map != nullptr});
    values.set(Arg::stride_randval, dropout.map_row_stride);
    values.set(Arg::nhead_stride_randval, dropout.map_head_stride);
    values.set(Arg::batch_stride_randval, dropout.map_batch_stride);
}

void set_sequences(ArgValues& values, const Sequences& sequences)
{
    values.set(Arg::seqstart_q_ptr, sequences.start_q);
    values.set(Arg::seqstart_k_ptr, sequences.start_k);
    values.set(Arg::seqlen_q_ptr, kNull);
    values.set(Arg::seqlen_k_ptr, sequences.length_k);
    values.set(Arg::cu_seqlen_q_ptr, kNull);
    values.set(Arg::cu_seqlen_k_ptr, kNull);
    values.set(Arg::min_seqlen_q, std::int64_t{0});
}

} // namespace

ArgValues fwd_arg_values(const FwdRequest& request)
{
    ArgValues values;
    values.set(Arg::seqlen_q, request.seqlen_q);
    values.set(Arg::seqlen_k, request.seqlen_k);
    values.set(Arg::hdim_q, request.hdim);
    values.set(Arg::hdim_v, request.hdim);
    values.set(Arg::num_head_q, request.heads_q);
    values.set(Arg::nhead_ratio_qk, request.heads_q / request.heads_k);
    // The kernels compute exponentials in base two (CK_TILE_FMHA_FWD_FAST_EXP2).
    values.set(Arg::scale_s, static_cast<float>(request.softmax_scale * std::numbers::log2e));
    values.set(Arg::scale_p, 1.0F);
    values.set(Arg::scale_o, 1.0F);

    values.set(Arg::stride_q, request.q.row_stride);
    values.set(Arg::stride_k, request.k.row_stride);
    values.set(Arg::stride_v, request.v.row_stride);
    values.set(Arg::stride_o, request.out.row_stride);
    values.set(Arg::nhead_stride_q, request.q.head_stride);
    values.set(Arg::nhead_stride_k, request.k.head_stride);
    values.set(Arg::nhead_stride_v, request.v.head_stride);
    values.set(Arg::nhead_stride_o, request.out.head_stride);
    values.set(Arg::batch_stride_q, request.q.batch_stride);
    values.set(Arg::batch_stride_k, request.k.batch_stride);
    values.set(Arg::batch_stride_v, request.v.batch_stride);
    values.set(Arg::batch_stride_o, request.out.batch_stride);
    values.set(Arg::nhead_stride_lse, request.lse_head_stride);
    values.set(Arg::batch_stride_lse, request.lse_batch_stride);
    set_features(values, request);
    set_sequences(values, request.sequences);
    return values;
}

ArgValues bwd_arg_values(const BwdRequest& request)
{
    const FwdRequest& forward = request.forward;
    ArgValues values          = fwd_arg_values(forward);
    values.set(Arg::raw_scale, static_cast<float>(forward.softmax_scale));
    values.set(Arg::scale, static_cast<float>(forward.softmax_scale * std::numbers::log2e));
    values.set(Arg::scale_rp_undrop, static_cast<float>(forward.softmax_scale / (1.0 - forward.dropout.p)));
    values.set(Arg::rand_val_ptr, kNull);
    return values;
}

} // namespace flash_attn_rocm
