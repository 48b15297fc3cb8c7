// The kernel that runs before attention with a KV cache (csrc/device/kv_prepare.hpp): lengths, append, rotation.
#pragma once

#include "fwd_request.hpp"
#include "queue.hpp"

namespace flash_attn_rocm {

struct Rotary
{
    const void* cosine = nullptr; // (seqlen, dim / 2), contiguous, q's dtype; null: no rotation
    const void* sine   = nullptr;
    std::int64_t dim     = 0;
    std::int64_t seqlen  = 0;
    bool interleaved     = true;
    bool per_row         = false; // query i at position length + i; else all at length
};

struct KvPrepareRequest
{
    std::string dtype;
    std::int64_t batch       = 0;
    std::int64_t seqlen_q    = 0;
    std::int64_t seqlen_knew = 0;
    std::int64_t capacity    = 0; // rows of one batch entry of the cache
    std::int64_t heads_q     = 0;
    std::int64_t heads_k     = 0;
    std::int64_t hdim        = 0;
    TensorView q, knew, vnew;
    TensorView k_cache, v_cache;    // in pages: batch_stride is that of a page
    std::int64_t cache_batches = 0; // of a cache in one piece
    std::int64_t num_pages     = 0; // of a cache in pages
    Pages pages;
    const void* cache_seqlens   = nullptr;
    const void* cache_batch_idx = nullptr;
    const void* cache_leftpad   = nullptr;
    Rotary rotary;
    void* q_out              = nullptr; // rows and heads of q one after the other, contiguous; null: q stays as it is
    std::int64_t group_heads = 1;       // query heads that become rows of one head in q_out
    void* start_q  = nullptr;           // int32 (batch + 1), (batch + 1), (batch): for Sequences
    void* start_k  = nullptr;
    void* length_k = nullptr;
};

// Rows from one batch entry of the cache to the next. Throws Error where that is no whole number, or not the same for
// keys and values: then no array of row numbers describes the cache.
std::int64_t rows_per_batch(const KvPrepareRequest& request);

// Throws Error, marked kNoKernel when none is installed or rows_per_batch cannot describe the cache.
void launch_kv_prepare(const Queue& queue, const KvPrepareRequest& request);

} // namespace flash_attn_rocm
