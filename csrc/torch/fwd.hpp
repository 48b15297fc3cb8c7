// The torch op `fwd`: tensors to a forward request.
#pragma once

#include <cstdint>
#include <optional>
#include <tuple>

#include <torch/csrc/stable/tensor.h>

namespace flash_attn_rocm {

std::tuple<torch::stable::Tensor, torch::stable::Tensor> fwd(torch::stable::Tensor q,
                                                             torch::stable::Tensor k,
                                                             torch::stable::Tensor v,
                                                             std::optional<torch::stable::Tensor> alibi_slopes,
                                                             double softmax_scale,
                                                             std::int64_t window_left,
                                                             std::int64_t window_right,
                                                             double softcap,
                                                             double dropout_p);

} // namespace flash_attn_rocm
