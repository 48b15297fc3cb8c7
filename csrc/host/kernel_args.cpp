// Packs argument values into the buffer a kernel is launched with, and knows what CK's forward kernel expects.
#include "kernel_args.hpp"

#include <cstring>
#include <limits>
#include <numbers>

#include "dispatch.hpp"
#include "error.hpp"

namespace flash_attn_rocm {
namespace {

// CK's mask_type for masks aligned at the bottom right corner of the score matrix.
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
             "-bit field");
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
    for(std::size_t i = 0; i < kArgCount; ++i)
    {
        const auto arg     = static_cast<Arg>(i);
        const ArgSlot slot = kernel.args[i];
        if(slot.size == 0)
        {
            continue;
        }
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
    values.set(Arg::nhead_stride_lse, request.seqlen_q);
    values.set(Arg::batch_stride_lse, request.heads_q * request.seqlen_q);

    const Window window = clamp_window(request);
    values.set(Arg::window_size_left, window.left);
    values.set(Arg::window_size_right, window.right);
    values.set(Arg::mask_type, window.bounded() ? kMaskBottomRight : kNoMask);

    // Batch mode: every sequence has the full length, so there are no tables of lengths.
    values.set(Arg::min_seqlen_q, std::int64_t{0});
    values.set(Arg::cu_seqlen_q_ptr, static_cast<const void*>(nullptr));
    values.set(Arg::cu_seqlen_k_ptr, static_cast<const void*>(nullptr));
    return values;
}

} // namespace flash_attn_rocm
