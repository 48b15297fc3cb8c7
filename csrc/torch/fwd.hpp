// The torch op `fwd`: attention of sequences of one length.
#pragma once

#include <cstdint>
#include <optional>
#include <tuple>

#include <torch/csrc/stable/tensor.h>

namespace flash_attn_rocm {

// out, lse, dropout_map.
using FwdResult = std::tuple<torch::stable::Tensor, torch::stable::Tensor, torch::stable::Tensor>;

FwdResult fwd(torch::stable::Tensor q,
              torch::stable::Tensor k,
              torch::stable::Tensor v,
              std::optional<torch::stable::Tensor> alibi_slopes,
              std::optional<torch::stable::Tensor> rng_state,
              double softmax_scale,
              std::int64_t window_left,
              std::int64_t window_right,
              double softcap,
              double dropout_p,
              bool return_dropout_map,
              bool deterministic); // of the gradients: nothing to do here

} // namespace flash_attn_rocm
