// Which arguments a kernel must have: what the host fills in for one that is not there is lost without an error.
#pragma once

#include <vector>

#include "manifest.hpp"

namespace flash_attn_rocm {

// Those that every kernel of this op, mode and features has; empty for kernels of ops that this library does not launch.
std::vector<Arg> required_args(const KernelInfo& kernel);

} // namespace flash_attn_rocm
