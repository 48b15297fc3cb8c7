// One forward attention call in plain numbers: what the torch op and any other host hand to the library.
#pragma once

#include <cstdint>
#include <string>

namespace flash_attn_rocm {

// A (batch, seqlen, heads, head dim) tensor in device memory; strides in elements, head dim contiguous.
struct TensorView
{
    const void* data          = nullptr;
    std::int64_t batch_stride = 0;
    std::int64_t row_stride   = 0;
    std::int64_t head_stride  = 0;
};

struct FwdRequest
{
    std::string dtype; // "fp16" or "bf16"
    std::int64_t batch    = 0;
    std::int64_t seqlen_q = 0;
    std::int64_t seqlen_k = 0;
    std::int64_t heads_q  = 0;
    std::int64_t heads_k  = 0;
    std::int64_t hdim     = 0;
    TensorView q, k, v, out;
    void* lse = nullptr; // float32 (batch, heads_q, seqlen_q), contiguous
    double softmax_scale      = 1.0;
    std::int64_t window_left  = -1; // keys seen before the aligned one; negative: unbounded
    std::int64_t window_right = -1;
    double softcap            = 0.0;
    double dropout_p          = 0.0;
    const float* alibi_slopes = nullptr;
};

inline constexpr std::int64_t kElementBytes = 2; // fp16 and bf16

} // namespace flash_attn_rocm
