// Checks of a forward request: extents, values and memory layout.
#include "checks.hpp"

#include <cstdint>
#include <limits>

#include "error.hpp"

namespace flash_attn_rocm {
namespace {

constexpr std::int64_t kInt32Max    = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kVectorBytes = 16;

// a * b + c for non-negative values; saturates instead of overflowing.
std::int64_t multiply_add(std::int64_t a, std::int64_t b, std::int64_t c)
{
    constexpr std::int64_t limit = std::numeric_limits<std::int64_t>::max();
    if(b != 0 && a > (limit - c) / b)
    {
        return limit;
    }
    return a * b + c;
}

} // namespace

void check_fwd_request(const FwdRequest& request)
{
    if(request.heads_k <= 0 || request.heads_q % request.heads_k != 0)
    {
        fail("nheads of q (", request.heads_q, ") must be a multiple of nheads of k and v (", request.heads_k, ")");
    }
    if(request.hdim <= 0)
    {
        fail("head dim is ", request.hdim, "; it must be positive");
    }
    if(request.seqlen_q > kInt32Max || request.seqlen_k > kInt32Max)
    {
        fail("sequence lengths are ", request.seqlen_q, " and ", request.seqlen_k, "; allowed: up to ", kInt32Max);
    }
    if(request.dropout_p < 0.0 || request.dropout_p >= 1.0)
    {
        fail("dropout_p is ", request.dropout_p, "; allowed: 0 <= dropout_p < 1");
    }
    if(request.softcap < 0.0)
    {
        fail("softcap is ", request.softcap, "; allowed: 0 (off) or a positive number");
    }
}

bool layout_too_large(const TensorView& view, std::int64_t seqlen, std::int64_t hdim)
{
    if(seqlen == 0)
    {
        return false;
    }
    const std::int64_t elements = multiply_add(seqlen - 1, view.row_stride, hdim);
    return view.row_stride > kInt32Max || view.head_stride > kInt32Max || elements > kInt32Max / kElementBytes;
}

bool layout_misaligned(const TensorView& view)
{
    const auto address = reinterpret_cast<std::uintptr_t>(view.data);
    constexpr std::int64_t elements = kVectorBytes / kElementBytes;
    return address % kVectorBytes != 0 || view.row_stride % elements != 0 || view.head_stride % elements != 0 ||
           view.batch_stride % elements != 0;
}

bool needs_alignment(const KernelInfo& kernel) { return kernel.padding != Padding::full; }

} // namespace flash_attn_rocm
