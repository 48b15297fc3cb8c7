// Our own kernel for the first step of backward: D = (1 - dropout_p) * rowsum(dO * O), the part of every score's
// gradient that the softmax's normalisation contributes. One wave per row of a head.
#pragma once

#include "bwd_record.hpp"
#include "plain_kernel.hpp"

namespace flash_attn_rocm {

template <class Element>
struct BwdDot
{
    static constexpr int kBlockSize = 128;
    static constexpr int kRows      = kBlockSize / kWaveSize; // one wave each
    static constexpr int kMaxHdim   = 256;

    struct Kargs
    {
        const Element* o_ptr;
        const Element* do_ptr;
        float* d_ptr;
        const std::int32_t* seqstart_q_ptr; // null: every batch entry has seqlen_q rows
        std::int64_t stride_o;
        std::int64_t stride_do;
        std::int64_t nhead_stride_o;
        std::int64_t nhead_stride_do;
        std::int64_t nhead_stride_d;
        std::int64_t batch_stride_o;
        std::int64_t batch_stride_do;
        std::int64_t batch_stride_d;
        std::int32_t seqlen_q;
        std::int32_t hdim_v;
        float p_undrop;
    };

    // Grid: (rows / kRows, heads, batch).
    __device__ void operator()(const Kargs& kargs) const
    {
        const std::int32_t lane  = threadIdx.x % kWaveSize;
        const std::int32_t row   = blockIdx.x * kRows + threadIdx.x / kWaveSize;
        const std::int64_t head  = blockIdx.y;
        const std::int64_t batch = blockIdx.z;
        const Span rows          = row_span(kargs.seqstart_q_ptr, batch, kargs.seqlen_q);
        if(row >= rows.length)
        {
            return;
        }
        const std::int64_t place = rows.first + row;
        const Element* out  = kargs.o_ptr + batch * kargs.batch_stride_o + head * kargs.nhead_stride_o + place * kargs.stride_o;
        const Element* grad = kargs.do_ptr + batch * kargs.batch_stride_do + head * kargs.nhead_stride_do +
                              place * kargs.stride_do;
        float sum = 0.0F;
#pragma unroll
        for(std::int32_t i = 0; i < kMaxHdim / kWaveSize; ++i)
        {
            const std::int32_t column = i * kWaveSize + lane;
            if(column < kargs.hdim_v)
            {
                sum += static_cast<float>(out[column]) * static_cast<float>(grad[column]);
            }
        }
#pragma unroll
        for(std::int32_t distance = kWaveSize / 2; distance > 0; distance /= 2)
        {
            const std::int32_t other = __builtin_amdgcn_ds_bpermute(4 * (lane ^ distance), __builtin_bit_cast(int, sum));
            sum += __builtin_bit_cast(float, other);
        }
        if(lane == 0)
        {
            kargs.d_ptr[batch * kargs.batch_stride_d + head * kargs.nhead_stride_d + place] = kargs.p_undrop * sum;
        }
    }
};

} // namespace flash_attn_rocm
