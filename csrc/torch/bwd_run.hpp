// What the ops of backward share after their checks: layouts that the kernels can read and write, workspace, launch.
#pragma once

#include <vector>

#include "../host/bwd_request.hpp"
#include "call_device.hpp"

namespace flash_attn_rocm {

// What a backward call reads: q, dout, out (batch, seqlen_q, nheads, headdim), k, v (batch, seqlen_k, nheads_k, headdim),
// lse float32 (batch, nheads, seqlen_q); in group mode (rows of all sequences, ...) and (nheads, rows).
struct BwdInputs
{
    const Tensor& dout;
    const Tensor& q;
    const Tensor& k;
    const Tensor& v;
    const Tensor& out;
    const Tensor& lse;
};

// What it writes, like q, k and v.
struct Gradients
{
    Tensor dq, dk, dv;
};

// Throws unless shapes and dtypes agree with q and k, lse has the shape `lse_shape`, and gradients have memory of their
// own.
void check_bwd_tensors(const BwdInputs& inputs, const Gradients& gradients, const std::vector<std::int64_t>& lse_shape);

// Fills the request's views, writes the gradients and returns softmax_d: float32 (1 - dropout_p) * rowsum(dout * out),
// like lse. Rows of gradients that belong to no sequence become 0.
Tensor run_bwd(BwdRequest& request, const BwdInputs& inputs, const Gradients& gradients, CallDevice& device);

} // namespace flash_attn_rocm
