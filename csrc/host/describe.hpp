// Reports of the library's state as JSON, for `flash_attn_rocm.info()` and bug reports.
#pragma once

#include <string>

#include "library.hpp"

namespace flash_attn_rocm {

// HIP runtime, devices and manifests; what fails appears as an "error" member, never as an exception.
std::string describe(Library& library);

// {"kernel name": launches, ...}
std::string describe_launches(Library& library);

} // namespace flash_attn_rocm
