// Runs a forward request: kernel, arguments, launches.
#pragma once

#include "fwd_request.hpp"
#include "library.hpp"

namespace flash_attn_rocm {

// The kernel for this request on this device. Throws Error, marked kNoKernel when nothing installed covers it.
const KernelInfo& select_fwd_kernel(Library& library, int device, const FwdRequest& request);

// Launches on `stream` of `device`, which must be current; returns without waiting. Extents must be positive and the
// layout must suit the kernel (checks.hpp).
void launch_fwd(Library& library, int device, HipStream stream, const KernelInfo& kernel, const FwdRequest& request);

} // namespace flash_attn_rocm
