// Checks of a forward request: extents, values and memory layout.
#include "checks.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include "error.hpp"
#include "integers.hpp"

namespace flash_attn_rocm {
namespace {

constexpr std::int64_t kVectorBytes = 16;

// The kernels' tanh is right to about 1e-7, so that scores are to 1e-7 of the cap.
constexpr double kMaxSoftcap = 10000;

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

void check_window_bound(const char* name, std::int64_t value)
{
    if(value < std::numeric_limits<std::int32_t>::min() || value > kInt32Max)
    {
        fail(name, " is ", value, "; allowed: negative (unbounded) to ", kInt32Max, ", in 32 bits");
    }
}

// What the kernels are given is the scale times log2(e) in float32: with 0, masked scores become -inf * 0 = NaN, and
// below 0 the row maximum, taken before scaling, is the minimum.
bool usable_scale(double softmax_scale)
{
    const auto scale = static_cast<float>(softmax_scale * std::numbers::log2e);
    return std::isfinite(softmax_scale) && std::isfinite(scale) && scale >= std::numeric_limits<float>::min();
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
    if(std::min(request.seqlen_q, request.seqlen_k) < 0 || std::max(request.seqlen_q, request.seqlen_k) > kInt32Max)
    {
        fail("sequence lengths are ", request.seqlen_q, " and ", request.seqlen_k, "; allowed: 0 to ", kInt32Max);
    }
    if(!usable_scale(request.softmax_scale))
    {
        fail("softmax_scale is ", request.softmax_scale, "; allowed: finite and above 0, in the range of float32. Set "
             "FLASH_ATTN_ROCM_BACKEND=sdpa for others");
    }
    check_window_bound("window_left", request.window_left);
    check_window_bound("window_right", request.window_right);
    // Written so that NaN fails.
    if(!(request.dropout.p >= 0.0 && request.dropout.p < 1.0))
    {
        fail("dropout_p is ", request.dropout.p, "; allowed: 0 <= dropout_p < 1");
    }
    if(request.dropout.p > 0.0 && request.dropout.rng_state == nullptr)
    {
        fail("dropout_p is ", request.dropout.p, ", but rng_state is missing: int64 (2) on q's device, seed and offset");
    }
    if(!(request.softcap >= 0.0 && request.softcap <= std::numeric_limits<float>::max()))
    {
        fail("softcap is ", request.softcap, "; allowed: 0 (off) or a finite positive number");
    }
    if(request.softcap > kMaxSoftcap)
    {
        fail(kNoKernel, concat("the kernels' soft caps end at ", kMaxSoftcap, ", but softcap is ", request.softcap,
                               ": beyond, scores would lose more than results in 16 bits do. Set "
                               "FLASH_ATTN_ROCM_BACKEND=sdpa, or softcap=0 for no cap"));
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
