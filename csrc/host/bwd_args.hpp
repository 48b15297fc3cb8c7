// Which arguments a backward kernel must have.
#pragma once

#include <vector>

#include "manifest.hpp"

namespace flash_attn_rocm {

// Those that every kernel of this op and these features has; empty for kernels of other ops.
std::vector<Arg> bwd_args(const KernelInfo& kernel);

} // namespace flash_attn_rocm
