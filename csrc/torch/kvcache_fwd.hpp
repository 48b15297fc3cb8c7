// The torch op `kvcache_fwd`: attention with a KV cache, to which new keys and values are appended first.
#pragma once

#include <cstdint>
#include <optional>
#include <tuple>

#include <torch/csrc/stable/tensor.h>

namespace flash_attn_rocm {

// out (batch, seqlen_q, nheads, headdim), lse float32 (batch, nheads, seqlen_q).
std::tuple<torch::stable::Tensor, torch::stable::Tensor>
kvcache_fwd(torch::stable::Tensor q,
            torch::stable::Tensor k_cache,
            torch::stable::Tensor v_cache,
            std::optional<torch::stable::Tensor> k,
            std::optional<torch::stable::Tensor> v,
            std::optional<torch::stable::Tensor> rotary_cos,
            std::optional<torch::stable::Tensor> rotary_sin,
            std::optional<torch::stable::Tensor> cache_seqlens,
            std::optional<torch::stable::Tensor> cache_batch_idx,
            std::optional<torch::stable::Tensor> cache_leftpad,
            std::optional<torch::stable::Tensor> block_table,
            std::optional<torch::stable::Tensor> alibi_slopes,
            double softmax_scale,
            std::int64_t window_left,
            std::int64_t window_right,
            double softcap,
            bool rotary_interleaved,
            std::int64_t num_splits);

} // namespace flash_attn_rocm
