// SHA-256 (FIPS 180-4), to check that a code object is the file its kernels.json describes.
#pragma once

#include <cstddef>
#include <string>

namespace flash_attn_rocm {

// Lower-case hexadecimal digest of `bytes` bytes.
std::string sha256_hex(const void* data, std::size_t bytes);

} // namespace flash_attn_rocm
