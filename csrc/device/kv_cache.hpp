// Where a batch entry's keys are in a KV cache, in one piece or in pages; for our own kernels.
#pragma once

#include "plain_kernel.hpp"

namespace flash_attn_rocm {

struct CacheEntry
{
    std::int64_t index;   // row of the cache's batch dimension; unused in a paged cache
    std::int32_t length;  // keys before new ones, with left padding
    std::int32_t leftpad; // slots before the first key
    bool valid;           // index and pages are within the cache
};

struct CacheSlot
{
    std::int64_t entry; // batch entry or page
    std::int64_t row;   // within it
};

__device__ inline std::int32_t clamp_to(std::int32_t value, std::int32_t largest)
{
    return value < 0 ? 0 : value > largest ? largest : value;
}

template <class Kargs>
__device__ CacheSlot find_slot(const Kargs& kargs, const CacheEntry& entry, std::int64_t batch, std::int32_t slot)
{
    if(kargs.block_table_ptr == nullptr)
    {
        return {entry.index, slot};
    }
    const std::int32_t page = slot / kargs.page_block_size;
    return {kargs.block_table_ptr[batch * kargs.batch_stride_block_table + page], slot - page * kargs.page_block_size};
}

// True when every page that holds one of the first `slots` slots lies in the cache. Every lane looks at its share.
template <class Kargs>
__device__ bool pages_exist(const Kargs& kargs, std::int64_t batch, std::int32_t slots)
{
    const std::int32_t* table = kargs.block_table_ptr + batch * kargs.batch_stride_block_table;
    const std::int32_t used   = (slots + kargs.page_block_size - 1) / kargs.page_block_size;
    bool exist                = true;
    for(std::int32_t i = threadIdx.x % kWaveSize; i < used; i += kWaveSize)
    {
        exist = exist && table[i] >= 0 && table[i] < kargs.num_pages;
    }
    return __any(static_cast<int>(!exist)) == 0;
}

template <class Kargs>
__device__ CacheEntry find_cache_entry(const Kargs& kargs, std::int64_t batch)
{
    CacheEntry entry{};
    const std::int32_t room = kargs.seqlen_k - kargs.seqlen_knew;
    entry.length  = kargs.cache_seqlens_ptr == nullptr ? room : clamp_to(kargs.cache_seqlens_ptr[batch], room);
    entry.leftpad = kargs.cache_leftpad_ptr == nullptr ? 0 : clamp_to(kargs.cache_leftpad_ptr[batch], kargs.seqlen_k);
    entry.index   = kargs.cache_batch_idx_ptr == nullptr ? batch : kargs.cache_batch_idx_ptr[batch];
    entry.valid   = kargs.block_table_ptr == nullptr
                        ? entry.index >= 0 && entry.index < kargs.cache_batches
                        : pages_exist(kargs, batch, entry.length + kargs.seqlen_knew);
    return entry;
}

} // namespace flash_attn_rocm
