// Where kernels are launched.
#pragma once

#include "hip_types.hpp"
#include "library.hpp"

namespace flash_attn_rocm {

// A stream of a device, which must be the current one. Launches return without waiting.
struct Queue
{
    Library& library;
    int device;
    HipStream stream;
};

} // namespace flash_attn_rocm
