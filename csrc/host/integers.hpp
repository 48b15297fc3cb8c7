// Integer arithmetic of extents and addresses.
#pragma once

#include <cstdint>
#include <limits>

namespace flash_attn_rocm {

inline constexpr std::int64_t kInt32Max   = std::numeric_limits<std::int32_t>::max();
inline constexpr std::int64_t kInt32Bytes = sizeof(std::int32_t);
inline constexpr std::int64_t kFloatBytes = sizeof(float);

// For a >= 0 and b > 0.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// An optional pointer, moved; null stays null.
inline const void* advance(const void* pointer, std::int64_t elements, std::int64_t element_bytes)
{
    return pointer == nullptr ? nullptr : static_cast<const char*>(pointer) + elements * element_bytes;
}

} // namespace flash_attn_rocm
