// Our own kernel that runs before attention with a KV cache: it works out every sequence's keys, appends new keys and
// values in place, and rotates (RoPE) new keys and queries. Any page size, any head dim, 64-bit offsets.
//
// Nothing outside of the cache is read or written whatever the arrays hold: lengths are clamped to the capacity, and a
// batch entry with an index or a page out of range has no keys (its output is 0, its LSE -inf) and nothing appended.
#pragma once

#include "kv_cache.hpp"

namespace flash_attn_rocm {

template <class Element>
struct KvPrepare
{
    static constexpr int kBlockSize = 128;
    static constexpr int kRows      = kBlockSize / kWaveSize; // one wave each
    static constexpr int kMaxHdim   = 256;

    struct Kargs
    {
        const Element* q_ptr;
        Element* q_out_ptr; // null: queries are used as they are
        const Element* knew_ptr;
        const Element* vnew_ptr;
        Element* k_ptr;
        Element* v_ptr;
        const Element* rotary_cos_ptr; // (rotary_seqlen, rotary_dim / 2), contiguous; null: no rotation
        const Element* rotary_sin_ptr;
        const std::int32_t* cache_seqlens_ptr; // null: the whole cache
        const std::int32_t* cache_batch_idx_ptr;
        const std::int32_t* cache_leftpad_ptr;
        const std::int32_t* block_table_ptr;
        std::int32_t* seqstart_q_out_ptr; // (batch + 1)
        std::int32_t* seqstart_k_out_ptr; // (batch + 1), in rows of the cache
        std::int32_t* seqlen_k_out_ptr;   // (batch)
        std::int64_t stride_q, nhead_stride_q, batch_stride_q;
        std::int64_t stride_out, nhead_stride_out; // of q_out
        std::int64_t stride_knew, nhead_stride_knew, batch_stride_knew;
        std::int64_t stride_vnew, nhead_stride_vnew, batch_stride_vnew;
        std::int64_t stride_k, nhead_stride_k, batch_stride_k; // batch: of a page in a paged cache
        std::int64_t stride_v, nhead_stride_v, batch_stride_v;
        std::int64_t batch_stride_block_table;
        std::int64_t rows_per_batch; // batch_stride_k / stride_k, for seqstart_k_out
        std::int32_t batch, seqlen_q, seqlen_k, seqlen_knew; // seqlen_k: capacity of one cache entry
        std::int32_t num_head_q, num_head_k, hdim_q;
        std::int32_t cache_batches, num_pages, page_block_size;
        std::int32_t rotary_dim, rotary_seqlen;
        std::int32_t group_heads; // query heads that become rows of one head in q_out; 1: none
        bool is_rotary_interleaved;
        bool is_rotary_per_row; // query i at position length + i; else all at length
    };

    // Grid: (rows / kRows, heads, batch), rows and heads the larger of queries and new keys.
    __device__ void operator()(const Kargs& kargs) const
    {
        const std::int32_t row   = blockIdx.x * kRows + threadIdx.x / kWaveSize;
        const std::int32_t head  = blockIdx.y;
        const std::int32_t batch = blockIdx.z;
        const CacheEntry entry   = find_cache_entry(kargs, batch);
        if(row == 0 && head == 0)
        {
            write_sequence(kargs, entry, batch);
        }
        if(entry.valid && row < kargs.seqlen_knew && head < kargs.num_head_k)
        {
            append(kargs, entry, batch, row, head);
        }
        if(kargs.q_out_ptr != nullptr && row < kargs.seqlen_q && head < kargs.num_head_q)
        {
            copy_query(kargs, entry, batch, row, head);
        }
    }

private:
    __device__ static void write_sequence(const Kargs& kargs, const CacheEntry& entry, std::int32_t batch)
    {
        if(threadIdx.x != 0)
        {
            return;
        }
        const std::int32_t rows_q = kargs.seqlen_q * kargs.group_heads;
        kargs.seqstart_q_out_ptr[batch]     = batch * rows_q;
        kargs.seqstart_q_out_ptr[batch + 1] = (batch + 1) * rows_q;
        const std::int32_t total            = entry.length + kargs.seqlen_knew;
        const std::int32_t padded           = entry.leftpad < total ? entry.leftpad : total;
        const bool paged                    = kargs.block_table_ptr != nullptr;
        const std::int64_t first            = paged ? 0 : entry.index * kargs.rows_per_batch;
        kargs.seqstart_k_out_ptr[batch]     = entry.valid ? static_cast<std::int32_t>(first) + padded : 0;
        kargs.seqlen_k_out_ptr[batch]       = entry.valid ? total - padded : 0;
        if(batch == kargs.batch - 1)
        {
            kargs.seqstart_k_out_ptr[batch + 1] = 0; // lengths come from seqlen_k_out
        }
    }

    // One element of a row after rotation to `position`; `row` is the whole row.
    __device__ static float
    rotated(const Kargs& kargs, const Element* row, std::int32_t column, std::int32_t position)
    {
        const auto value = static_cast<float>(row[column]);
        if(column >= kargs.rotary_dim)
        {
            return value;
        }
        const std::int32_t half = kargs.rotary_dim / 2;
        const bool interleaved  = kargs.is_rotary_interleaved;
        const bool second       = interleaved ? column % 2 == 1 : column >= half;
        const std::int32_t pair = interleaved ? column / 2 : (second ? column - half : column);
        const std::int32_t step = interleaved ? 1 : half;
        const auto other        = static_cast<float>(row[second ? column - step : column + step]);
        const std::int32_t last = kargs.rotary_seqlen - 1;
        const std::int64_t at   = std::int64_t{position < last ? position : last} * half + pair;
        const auto cosine       = static_cast<float>(kargs.rotary_cos_ptr[at]);
        const auto sine         = static_cast<float>(kargs.rotary_sin_ptr[at]);
        return second ? value * cosine + other * sine : value * cosine - other * sine;
    }

    __device__ static void append(
        const Kargs& kargs, const CacheEntry& entry, std::int64_t batch, std::int32_t row, std::int32_t head)
    {
        const std::int32_t slot = entry.length + row;
        const Element* knew =
            kargs.knew_ptr + batch * kargs.batch_stride_knew + row * kargs.stride_knew + head * kargs.nhead_stride_knew;
        const Element* vnew =
            kargs.vnew_ptr + batch * kargs.batch_stride_vnew + row * kargs.stride_vnew + head * kargs.nhead_stride_vnew;
        const CacheSlot place = find_slot(kargs, entry, batch, slot);
        Element* k            = kargs.k_ptr + place.entry * kargs.batch_stride_k + place.row * kargs.stride_k +
                     head * kargs.nhead_stride_k;
        Element* v = kargs.v_ptr + place.entry * kargs.batch_stride_v + place.row * kargs.stride_v +
                     head * kargs.nhead_stride_v;
        for(std::int32_t column = threadIdx.x % kWaveSize; column < kargs.hdim_q; column += kWaveSize)
        {
            k[column] = static_cast<Element>(rotated(kargs, knew, column, slot));
            v[column] = vnew[column];
        }
    }

    __device__ static void copy_query(
        const Kargs& kargs, const CacheEntry& entry, std::int64_t batch, std::int32_t row, std::int32_t head)
    {
        const Element* q =
            kargs.q_ptr + batch * kargs.batch_stride_q + row * kargs.stride_q + head * kargs.nhead_stride_q;
        const std::int64_t row_out = (batch * kargs.seqlen_q + row) * kargs.group_heads + head % kargs.group_heads;
        Element* out =
            kargs.q_out_ptr + row_out * kargs.stride_out + (head / kargs.group_heads) * kargs.nhead_stride_out;
        const std::int32_t position = entry.length + (kargs.is_rotary_per_row ? row : 0);
        for(std::int32_t column = threadIdx.x % kWaveSize; column < kargs.hdim_q; column += kWaveSize)
        {
            out[column] = static_cast<Element>(rotated(kargs, q, column, position));
        }
    }
};

} // namespace flash_attn_rocm
