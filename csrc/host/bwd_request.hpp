// One backward attention call in plain numbers: the forward call, the gradient of its output, and where gradients go.
#pragma once

#include <cstdint>

#include "fwd_request.hpp"

namespace flash_attn_rocm {

struct BwdRequest
{
    FwdRequest forward; // its out and lse are inputs here
    TensorView dout;
    TensorView dq, dk, dv; // like q, k and v, in their dtype; every row of every sequence is written
    bool deterministic = false;
};

// Device memory of a backward call beside its tensors. `delta` is laid out like lse.
struct BwdWorkspace
{
    void* delta    = nullptr; // float32: (1 - dropout_p) * rowsum(dout * out)
    void* dq_parts = nullptr; // float32 (batch, heads_q, splits, seqlen_q, hdim); group mode: (heads_q, splits, rows, hdim)
    void* dk_parts = nullptr; // (batch, seqlen_k, heads_q, hdim) or (rows, heads_q, hdim); null where heads_q == heads_k
    void* dv_parts = nullptr;
};

} // namespace flash_attn_rocm
