// What the library needs from the torch in this process beyond the stable ABI: its directory, errors, the current stream.
#pragma once

#include <cstdint>
#include <string>

#include "../host/hip_types.hpp"

namespace flash_attn_rocm {

// Tells the host library where torch's own libraries lie, for the search of the HIP runtime.
void announce_torch();

// What torch says of the last call of its C interface that failed on this thread.
std::string torch_error();

// Native handle of torch's current stream on a device of a ROCm torch.
HipStream current_stream(std::int32_t device);

} // namespace flash_attn_rocm
