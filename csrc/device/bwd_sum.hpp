// Our own kernel for the last step of backward: the sum of parts, in order and in f32, rounded once. The parts of dQ
// are f32 sums over some keys each, those of dK and dV belong to the query heads of one key head.
#pragma once

#include "bwd_record.hpp"
#include "plain_kernel.hpp"

namespace flash_attn_rocm {

template <class Element, class Part>
struct BwdSum
{
    static constexpr int kBlockSize = 128;
    static constexpr int kRows      = kBlockSize / kWaveSize; // one wave each
    static constexpr int kMaxHdim   = 256;

    struct Kargs
    {
        const Part* parts_ptr;
        Element* sum_ptr;
        const std::int32_t* seqstart_q_ptr; // null: every batch entry has seqlen_q rows
        const std::int32_t* seqstart_k_ptr; // null: every batch entry has seqlen_k keys
        std::int64_t stride_parts;
        std::int64_t stride_sum;
        std::int64_t nhead_stride_parts;
        std::int64_t nhead_stride_sum;
        std::int64_t batch_stride_parts;
        std::int64_t batch_stride_sum;
        std::int64_t split_stride_parts;
        std::int32_t seqlen_q;
        std::int32_t seqlen_k;
        std::int32_t hdim_q;
        std::int32_t num_splits;     // parts that there are
        std::int32_t keys_per_split; // where not 0: the sequence has one part for each so many of its keys
    };

    // Grid: (rows / kRows, heads, batch). Without any part the sum is 0.
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
        std::int32_t count = kargs.num_splits;
        if(kargs.keys_per_split > 0)
        {
            const std::int32_t keys = row_span(kargs.seqstart_k_ptr, batch, kargs.seqlen_k).length;
            const std::int32_t own  = (keys + kargs.keys_per_split - 1) / kargs.keys_per_split;
            count                   = own < count ? own : count; // a sequence may be longer than the caller says
        }
        const std::int64_t place = rows.first + row;
        const Part* part = kargs.parts_ptr + batch * kargs.batch_stride_parts + head * kargs.nhead_stride_parts +
                           place * kargs.stride_parts;
        Element* sum =
            kargs.sum_ptr + batch * kargs.batch_stride_sum + head * kargs.nhead_stride_sum + place * kargs.stride_sum;

        float sums[kMaxHdim / kWaveSize] = {};
        for(std::int32_t split = 0; split < count; ++split)
        {
#pragma unroll
            for(std::int32_t i = 0; i < kMaxHdim / kWaveSize; ++i)
            {
                const std::int32_t column = i * kWaveSize + lane;
                sums[i] += column < kargs.hdim_q ? static_cast<float>(part[column]) : 0.0F;
            }
            part += kargs.split_stride_parts;
        }
#pragma unroll
        for(std::int32_t i = 0; i < kMaxHdim / kWaveSize; ++i)
        {
            const std::int32_t column = i * kWaveSize + lane;
            if(column < kargs.hdim_q)
            {
                sum[column] = static_cast<Element>(sums[i]);
            }
        }
    }
};

template <class Element>
using BwdSumKeys = BwdSum<Element, float>;

template <class Element>
using BwdSumHeads = BwdSum<Element, Element>;

} // namespace flash_attn_rocm
