// The torch ops, each for its schema in ops.cpp.
#pragma once

#include "boxed.hpp"

namespace flash_attn_rocm {

extern const BoxedOp fwd_op;
extern const BoxedOp varlen_fwd_op;
extern const BoxedOp kvcache_fwd_op;
extern const BoxedOp bwd_op;
extern const BoxedOp bwd_out_op;
extern const BoxedOp varlen_bwd_op;
extern const BoxedOp varlen_bwd_out_op;

} // namespace flash_attn_rocm
