// Checks of a forward request before anything is launched, and whether a tensor's layout suits a kernel.
#pragma once

#include "fwd_request.hpp"
#include "manifest.hpp"

namespace flash_attn_rocm {

// Throws Error for extents and values no kernel could run; the op's caller gets the argument, its value and what is
// allowed.
void check_fwd_request(const FwdRequest& request);

// True when the (seqlen, head dim) plane of one head, or a stride within it, is beyond the kernels' 32-bit offsets.
bool layout_too_large(const TensorView& view, std::int64_t seqlen, std::int64_t hdim);

// True when rows do not all start at a multiple of 16 bytes, which kernels with vector loads need.
bool layout_misaligned(const TensorView& view);

// True when the kernel reads whole 16-byte vectors along the head dim.
bool needs_alignment(const KernelInfo& kernel);

} // namespace flash_attn_rocm
