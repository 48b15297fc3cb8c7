// One forward attention call in plain numbers: what the torch ops and any other host hand to the library.
#pragma once

#include <cstdint>
#include <string>

namespace flash_attn_rocm {

// A tensor in device memory: (batch, seqlen, heads, head dim), or (rows, heads, head dim) where sequences lie one after
// the other (then batch_stride is 0). Strides in elements, head dim contiguous.
struct TensorView
{
    const void* data          = nullptr;
    std::int64_t batch_stride = 0;
    std::int64_t row_stride   = 0;
    std::int64_t head_stride  = 0;
};

enum class Mode
{
    batch, // every sequence has the full length
    group, // sequence starts and lengths come from arrays in device memory
};

// Where sequences start and how long they are, int32 in device memory; group mode only.
struct Sequences
{
    const void* start_q  = nullptr; // (batch + 1): row of q and out; lengths are the differences
    const void* start_k  = nullptr; // (batch + 1): row of k and v
    const void* length_k = nullptr; // (batch), or null: the differences of start_k
};

// Keys and values in pages: k and v are (pages, page size, heads, head dim), and batch_stride is that of a page.
struct Pages
{
    const void* table         = nullptr; // int32 (batch, table_stride) in device memory; null: not in pages
    std::int64_t table_stride = 0;
    std::int64_t size         = 0; // rows of a page
};

struct Dropout
{
    double p                    = 0.0;
    const void* rng_state       = nullptr; // int64 (2) in device memory: seed, offset
    void* map                   = nullptr; // uint8 random values to return, or null
    std::int64_t map_row_stride = 0;
    std::int64_t map_head_stride  = 0;
    std::int64_t map_batch_stride = 0;
};

struct FwdRequest
{
    Mode mode = Mode::batch;
    std::string dtype; // "fp16" or "bf16"
    std::int64_t batch    = 0;
    std::int64_t seqlen_q = 0; // of the longest sequence in group mode
    std::int64_t seqlen_k = 0;
    std::int64_t heads_q  = 0;
    std::int64_t heads_k  = 0;
    std::int64_t hdim     = 0;
    TensorView q, k, v, out;
    Sequences sequences;
    Pages pages;
    void* lse = nullptr; // float32 (batch, heads_q, seqlen_q), or (heads_q, rows of q) in group mode
    std::int64_t lse_head_stride  = 0;
    std::int64_t lse_batch_stride = 0;
    double softmax_scale      = 1.0;
    std::int64_t window_left  = -1; // keys seen before the aligned one; negative: unbounded
    std::int64_t window_right = -1;
    double softcap            = 0.0;
    Dropout dropout;
    const void* alibi_slopes        = nullptr; // float32
    std::int64_t alibi_batch_stride = 0;       // in elements; 0: the same slopes for every batch entry
};

inline constexpr std::int64_t kElementBytes = 2; // fp16 and bf16

} // namespace flash_attn_rocm
