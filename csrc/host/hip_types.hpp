// The few HIP types the host library needs, so that it builds without ROCm. Layouts are those of HIP 6.0 and later.
#pragma once

#include <cstddef>

namespace flash_attn_rocm {

using HipError    = int;
using HipStream   = void*;
using HipModule   = void*;
using HipFunction = void*;

inline constexpr HipError kHipSuccess             = 0;
inline constexpr unsigned int kHostRegisterMapped = 2;

// Keys of the `extra` array of hipModuleLaunchKernel (HIP_LAUNCH_PARAM_*).
inline void* const kLaunchParamBufferPointer = reinterpret_cast<void*>(1);
inline void* const kLaunchParamBufferSize    = reinterpret_cast<void*>(2);
inline void* const kLaunchParamEnd           = reinterpret_cast<void*>(3);

// hipDeviceProp_tR0600: only the fields we read have names. The runtime writes the whole struct (1472 bytes in HIP
// 6.4), so the tail leaves room for runtimes that append to it.
struct HipDeviceProperties
{
    char name[256];
    char before_warp_size[52];
    int warp_size;
    char before_multiprocessors[76];
    int multiprocessors;
    char before_pci[192];
    int pci_bus;
    int pci_device;
    int pci_domain;
    char before_gfx[564];
    char gfx[256]; // "gfx1201" or "gfx90a:sramecc+:xnack-"
    char after[4096 - 1416];
};
static_assert(offsetof(HipDeviceProperties, warp_size) == 308);
static_assert(offsetof(HipDeviceProperties, multiprocessors) == 388);
static_assert(offsetof(HipDeviceProperties, pci_bus) == 584);
static_assert(offsetof(HipDeviceProperties, gfx) == 1160);
static_assert(sizeof(HipDeviceProperties) == 4096);

} // namespace flash_attn_rocm
