// What our own kernels share: lanes of a wave, exponentials, and where a batch entry's rows are.
#pragma once

#include "kernel_record.hpp"

namespace flash_attn_rocm {

inline constexpr int kWaveSize = __AMDGCN_WAVEFRONT_SIZE;

struct Span
{
    std::int64_t first;
    std::int32_t length;
};

// Rows of a batch entry: from the array of starts, or `length` rows from 0 where there is none.
__device__ inline Span row_span(const std::int32_t* starts, std::int64_t batch, std::int32_t length)
{
    if(starts == nullptr)
    {
        return {0, length};
    }
    return {starts[batch], starts[batch + 1] - starts[batch]};
}

inline constexpr float kLog2E = 1.44269504088896340736F;
inline constexpr float kLn2   = 0.69314718055994530942F;

// The hardware's exponential and logarithm are base two.
__device__ inline float exp_of(float x) { return __builtin_amdgcn_exp2f(x * kLog2E); }
__device__ inline float log_of(float x) { return __builtin_amdgcn_logf(x) * kLn2; }

} // namespace flash_attn_rocm
