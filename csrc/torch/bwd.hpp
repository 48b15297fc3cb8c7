// The torch ops `bwd` and `varlen_bwd`, which return new gradients, and `bwd_out` and `varlen_bwd_out`, which write into
// the caller's.
#pragma once

#include <cstdint>
#include <optional>
#include <tuple>

#include <torch/csrc/stable/tensor.h>

namespace flash_attn_rocm {

// dq, dk, dv and softmax_d: float32 (1 - dropout_p) * rowsum(dout * out), shaped like lse.
using BwdResult = std::tuple<torch::stable::Tensor, torch::stable::Tensor, torch::stable::Tensor, torch::stable::Tensor>;

// q, dout, out (batch, seqlen_q, nheads, headdim); k, v (batch, seqlen_k, nheads_k, headdim); lse (batch, nheads, seqlen_q).
torch::stable::Tensor bwd_out(torch::stable::Tensor dout,
                              torch::stable::Tensor q,
                              torch::stable::Tensor k,
                              torch::stable::Tensor v,
                              torch::stable::Tensor out,
                              torch::stable::Tensor lse,
                              torch::stable::Tensor dq,
                              torch::stable::Tensor dk,
                              torch::stable::Tensor dv,
                              std::optional<torch::stable::Tensor> alibi_slopes,
                              std::optional<torch::stable::Tensor> rng_state,
                              double softmax_scale,
                              std::int64_t window_left,
                              std::int64_t window_right,
                              double dropout_p,
                              bool deterministic);

BwdResult bwd(torch::stable::Tensor dout,
              torch::stable::Tensor q,
              torch::stable::Tensor k,
              torch::stable::Tensor v,
              torch::stable::Tensor out,
              torch::stable::Tensor lse,
              std::optional<torch::stable::Tensor> alibi_slopes,
              std::optional<torch::stable::Tensor> rng_state,
              double softmax_scale,
              std::int64_t window_left,
              std::int64_t window_right,
              double dropout_p,
              bool deterministic);

// q, dout, out (rows of q, nheads, headdim); k, v (rows of k, nheads_k, headdim); lse (nheads, rows of q).
torch::stable::Tensor varlen_bwd_out(torch::stable::Tensor dout,
                                     torch::stable::Tensor q,
                                     torch::stable::Tensor k,
                                     torch::stable::Tensor v,
                                     torch::stable::Tensor out,
                                     torch::stable::Tensor lse,
                                     torch::stable::Tensor cu_seqlens_q,
                                     torch::stable::Tensor cu_seqlens_k,
                                     torch::stable::Tensor dq,
                                     torch::stable::Tensor dk,
                                     torch::stable::Tensor dv,
                                     std::optional<torch::stable::Tensor> alibi_slopes,
                                     std::optional<torch::stable::Tensor> rng_state,
                                     std::int64_t max_seqlen_q,
                                     std::int64_t max_seqlen_k,
                                     double softmax_scale,
                                     std::int64_t window_left,
                                     std::int64_t window_right,
                                     double dropout_p,
                                     bool deterministic);

BwdResult varlen_bwd(torch::stable::Tensor dout,
                     torch::stable::Tensor q,
                     torch::stable::Tensor k,
                     torch::stable::Tensor v,
                     torch::stable::Tensor out,
                     torch::stable::Tensor lse,
                     torch::stable::Tensor cu_seqlens_q,
                     torch::stable::Tensor cu_seqlens_k,
                     std::optional<torch::stable::Tensor> alibi_slopes,
                     std::optional<torch::stable::Tensor> rng_state,
                     std::int64_t max_seqlen_q,
                     std::int64_t max_seqlen_k,
                     double softmax_scale,
                     std::int64_t window_left,
                     std::int64_t window_right,
                     double dropout_p,
                     bool deterministic);

} // namespace flash_attn_rocm
