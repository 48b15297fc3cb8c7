// Our own kernel that joins the partial results of split-KV: out = sum_s exp(lse_s - lse) out_s with
// lse = log(sum_s exp(lse_s)). One wave per row of a head; a row that no split saw a key for gives 0 and -inf.
#pragma once

#include "plain_kernel.hpp"

namespace flash_attn_rocm {

template <class Element>
struct SplitCombine
{
    static constexpr int kBlockSize = 128;
    static constexpr int kRows      = kBlockSize / kWaveSize; // one wave each
    static constexpr int kMaxHdim   = 256;

    struct Kargs
    {
        const float* lse_acc_ptr; // (split, row) of a head
        const float* o_acc_ptr;   // (split, row, head dim)
        Element* o_ptr;
        float* lse_ptr;
        const std::int32_t* seqstart_q_ptr; // null: every batch entry has seqlen_q rows
        std::int64_t split_stride_lse_acc;
        std::int64_t split_stride_o_acc;
        std::int64_t nhead_stride_lse_acc;
        std::int64_t nhead_stride_o_acc;
        std::int64_t nhead_stride_lse;
        std::int64_t nhead_stride_o;
        std::int64_t batch_stride_lse_acc;
        std::int64_t batch_stride_o_acc;
        std::int64_t batch_stride_lse;
        std::int64_t batch_stride_o;
        std::int64_t stride_o_acc;
        std::int64_t stride_o;
        std::int32_t seqlen_q;
        std::int32_t hdim_v;
        std::int32_t num_splits;
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
        // In group mode rows of all sequences lie one after the other, so the batch strides are 0.
        const std::int64_t place = rows.first + row;
        const float* lse_acc =
            kargs.lse_acc_ptr + batch * kargs.batch_stride_lse_acc + head * kargs.nhead_stride_lse_acc + place;
        const float* o_acc = kargs.o_acc_ptr + batch * kargs.batch_stride_o_acc + head * kargs.nhead_stride_o_acc +
                             place * kargs.stride_o_acc;
        Element* out = kargs.o_ptr + batch * kargs.batch_stride_o + head * kargs.nhead_stride_o + place * kargs.stride_o;

        float largest = -__builtin_inff();
        for(std::int32_t split = 0; split < kargs.num_splits; ++split)
        {
            largest = __builtin_fmaxf(largest, lse_acc[split * kargs.split_stride_lse_acc]);
        }
        const bool seen = largest != -__builtin_inff();
        float total     = 0.0F;
        float sums[kMaxHdim / kWaveSize] = {};
        for(std::int32_t split = 0; seen && split < kargs.num_splits; ++split)
        {
            const float weight = exp_of(lse_acc[split * kargs.split_stride_lse_acc] - largest);
            if(weight == 0.0F)
            {
                continue;
            }
            total += weight;
            const float* part = o_acc + split * kargs.split_stride_o_acc;
#pragma unroll
            for(std::int32_t i = 0; i < kMaxHdim / kWaveSize; ++i)
            {
                const std::int32_t column = i * kWaveSize + lane;
                sums[i] += column < kargs.hdim_v ? weight * part[column] : 0.0F;
            }
        }
        const float scale = seen ? 1.0F / total : 0.0F;
#pragma unroll
        for(std::int32_t i = 0; i < kMaxHdim / kWaveSize; ++i)
        {
            const std::int32_t column = i * kWaveSize + lane;
            if(column < kargs.hdim_v)
            {
                out[column] = static_cast<Element>(sums[i] * scale);
            }
        }
        if(lane == 0)
        {
            kargs.lse_ptr[batch * kargs.batch_stride_lse + head * kargs.nhead_stride_lse + place] =
                seen ? largest + log_of(total) : largest;
        }
    }
};

} // namespace flash_attn_rocm
