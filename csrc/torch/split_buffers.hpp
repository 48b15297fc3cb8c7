// Memory for the parts' results of split-KV.
#pragma once

#include "../host/split.hpp"
#include "tensors.hpp"

namespace flash_attn_rocm {

struct SplitTensors
{
    Tensor lse_acc, o_acc;
    SplitBuffers buffers;
};

// float32 for `rows` rows of q of every head.
inline SplitTensors make_split_tensors(const Tensor& q, const FwdRequest& request, std::int64_t splits, std::int64_t rows)
{
    SplitTensors made{
        make_tensor(q, {request.heads_q, splits, rows}, ScalarType::Float),
        make_tensor(q, {request.heads_q, splits, rows, request.hdim}, ScalarType::Float),
        {}};
    made.buffers = {made.lse_acc.data_ptr(), made.o_acc.data_ptr(), rows};
    return made;
}

} // namespace flash_attn_rocm
