// The torch op `varlen_fwd`: attention of sequences of different lengths, one after the other.
#pragma once

#include "fwd.hpp"

namespace flash_attn_rocm {

FwdResult varlen_fwd(torch::stable::Tensor q,
                     torch::stable::Tensor k,
                     torch::stable::Tensor v,
                     torch::stable::Tensor cu_seqlens_q,
                     torch::stable::Tensor cu_seqlens_k,
                     std::optional<torch::stable::Tensor> seqused_k,
                     std::optional<torch::stable::Tensor> block_table,
                     std::optional<torch::stable::Tensor> alibi_slopes,
                     std::optional<torch::stable::Tensor> rng_state,
                     std::int64_t max_seqlen_q,
                     std::int64_t max_seqlen_k,
                     double softmax_scale,
                     std::int64_t window_left,
                     std::int64_t window_right,
                     double softcap,
                     double dropout_p,
                     bool return_dropout_map,
                     std::int64_t num_splits,
                     bool deterministic); // of the gradients: nothing to do here

} // namespace flash_attn_rocm
