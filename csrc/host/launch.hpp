// Launches kernels: any one of a device, and a whole forward request.
#pragma once

#include "dispatch.hpp"
#include "fwd_request.hpp"
#include "kernel_args.hpp"
#include "queue.hpp"

namespace flash_attn_rocm {

// A kernel and the manifest that describes it.
struct InstalledKernel
{
    const Manifest& manifest;
    const KernelInfo& kernel;
};

// The kernels for this device. Throws Error when there are none, or for another wave size than the device has.
const Manifest& usable_manifest(Library& library, int device);

// One launch of any kernel.
void launch_kernel(const Queue& queue, const InstalledKernel& chosen, const ArgValues& values, Grid grid);

// The kernel for this request on this device. Throws Error, marked kNoKernel when nothing installed covers it, or when
// the kernels were built for another wave size than the device has.
InstalledKernel select_fwd_kernel(Library& library, int device, const FwdRequest& request);

// Extents must be positive and the layout must suit the kernel (checks.hpp).
void launch_fwd(const Queue& queue, const InstalledKernel& chosen, const FwdRequest& request);

} // namespace flash_attn_rocm
