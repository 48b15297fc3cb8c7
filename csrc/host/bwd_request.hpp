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
    void* dq_parts = nullptr; // float32 (splits, batch, heads_q, seqlen_q, hdim); group mode: (splits, heads_q, rows, hdim)
    void* dk_parts = nullptr; // (batch, heads_q, seqlen_k, hdim) or (heads_q, rows, hdim); null where heads_q == heads_k
    void* dv_parts = nullptr;
    std::int64_t rows_k = 0; // rows of dk_parts: seqlen_k, or those of all sequences
};

} // namespace flash_attn_rocm
