// Runs a backward request: kernels, workspace, arguments, launches.
#pragma once

#include "bwd_request.hpp"
#include "queue.hpp"

namespace flash_attn_rocm {

// The kernels of a backward call and what they need. Order: dot, gradient, sum_keys, sum_heads for dk and for dv.
struct BwdPlan
{
    const Manifest& manifest;
    const KernelInfo& dot;       // delta
    const KernelInfo& gradient;  // dk and dv of each query head, dq in float32
    const KernelInfo& sum_keys;  // dq from its parts
    const KernelInfo* sum_heads; // dk and dv from those of the query heads; null where heads_q == heads_k
    std::int64_t splits;         // parts of dq: 1, or one per tile of keys of the longest sequence (deterministic)
    bool zero_parts;             // the gradient kernel adds to dq's parts, or leaves some of them unwritten
};

// The kernels for this request on this device. Throws Error, marked kNoKernel when nothing installed covers it.
BwdPlan plan_bwd(Library& library, int device, const BwdRequest& request);

// Extents must be positive, layouts must suit the kernels, parts that the plan says so must be zero, and so must dk and dv
// (or their parts) in group mode.
void launch_bwd(const Queue& queue, const BwdPlan& plan, const BwdRequest& request, const BwdWorkspace& workspace);

} // namespace flash_attn_rocm
