// SHA-256 (FIPS 180-4): the host library checks code objects with it, the emulator finds listings by it.
#pragma once

#include <cstddef>
#include <string>

namespace flash_attn_rocm {

// Lower-case hexadecimal digest of `bytes` bytes.
std::string sha256_hex(const void* data, std::size_t bytes);

} // namespace flash_attn_rocm
