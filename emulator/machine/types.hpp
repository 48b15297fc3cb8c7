// Integer types, bit casts and the poison value: what does not depend on the number of lanes.
#pragma once
#include <cstdint>
#include <cstring>

namespace emu {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s16 = std::int16_t;
using s32 = std::int32_t;
using s64 = std::int64_t;

// Poison: a NaN as f32, as f64 and in both halves as f16 and bf16; as an address it is outside every allocation.
inline constexpr u32 kPoison = 0x7FE17FE1u;

template <class To, class From>
[[gnu::always_inline]] inline To bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}

}  // namespace emu
