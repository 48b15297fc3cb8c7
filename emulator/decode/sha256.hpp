// SHA-256 (FIPS 180-4), by which decoded listings are found.
#pragma once
#include <cstdint>
#include <span>
#include <string>

namespace emu {

// Lower-case hexadecimal digest.
std::string sha256(std::span<const std::uint8_t> data);

}  // namespace emu
