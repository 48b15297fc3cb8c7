// What a caller may ask of attention beside its tensors, alike in all ops.
#pragma once

#include <cstdint>
#include <optional>

#include "call_device.hpp"

namespace flash_attn_rocm {

struct Options
{
    double softmax_scale      = 1.0;
    std::int64_t window_left  = -1; // negative: unbounded
    std::int64_t window_right = -1;
    double softcap            = 0.0;
    double dropout_p          = 0.0;
    std::optional<Tensor> alibi_slopes; // float32, (heads) or (batch, heads)
    std::optional<Tensor> rng_state;    // int64 (2), seed and offset; used with dropout only
};

// Completes and checks a request whose extents are set.
void set_options(FwdRequest& request, const Tensor& q, const Options& options, CallDevice& device);

} // namespace flash_attn_rocm
