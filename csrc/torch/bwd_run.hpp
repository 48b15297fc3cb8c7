// What the ops bwd and varlen_bwd share: layouts that the kernels can read and write, the workspace, the launch.
#pragma once

#include <vector>

#include "../host/bwd_request.hpp"
#include "run.hpp"

namespace flash_attn_rocm {

// The tensors of a backward call: (batch, seqlen, heads, head dim), or (rows, heads, head dim) in group mode.
struct BwdTensors
{
    Tensor dout, q, k, v, out, lse; // read
    Tensor dq, dk, dv;              // written
};

// Throws unless shapes and dtypes agree with q, k and v, and lse is float32 and contiguous of the shape `lse_shape`.
void check_bwd_tensors(const BwdTensors& tensors, const std::vector<std::int64_t>& lse_shape);

// Fills the request's views, writes dq, dk and dv and returns softmax_d, like lse. `used`: further tensors that the
// kernels read. Rows of dq, dk and dv that belong to no sequence become 0.
Tensor run_bwd(BwdRequest& request, BwdTensors tensors, std::vector<Tensor> used);

} // namespace flash_attn_rocm
