// Vector types of one value per lane of a wave32, and the bit tricks that every semantic function needs.
#pragma once
#include <immintrin.h>

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

inline constexpr int kLanes = 32;

// Clang vector types; 32 lanes are four AVX2 registers. Masks are S32 with 0 or -1 per lane.
using U32 = u32 __attribute__((ext_vector_type(32)));
using S32 = s32 __attribute__((ext_vector_type(32)));
using F32 = float __attribute__((ext_vector_type(32)));
using U64 = u64 __attribute__((ext_vector_type(32)));
using S64 = s64 __attribute__((ext_vector_type(32)));
using F64 = double __attribute__((ext_vector_type(32)));

// Scalar counterpart of a lane type.
template <class V>
struct ScalarOf;
template <>
struct ScalarOf<U32> {
  using type = u32;
};
template <>
struct ScalarOf<S32> {
  using type = s32;
};
template <>
struct ScalarOf<F32> {
  using type = float;
};
template <>
struct ScalarOf<U64> {
  using type = u64;
};
template <>
struct ScalarOf<S64> {
  using type = s64;
};
template <>
struct ScalarOf<F64> {
  using type = double;
};

// Poison: a NaN as f32, as f64 and in both halves as f16 and bf16; as an address it is outside every allocation.
inline constexpr u32 kPoison = 0x7FE17FE1u;

template <class To, class From>
[[gnu::always_inline]] inline To bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}

template <class To, class From>
[[gnu::always_inline]] inline To convert(From from) {
  return __builtin_convertvector(from, To);
}

[[gnu::always_inline]] inline U32 lane_numbers() {
  return U32{0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
             16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};
}

// One bit per lane -> 0 or -1 per lane.
[[gnu::always_inline]] inline S32 expand_mask(u32 mask) {
  return bits<S32>((U32(mask) >> lane_numbers()) & U32(1)) != S32(0);
}

// Sign bit of each lane -> one bit per lane.
[[gnu::always_inline]] inline u32 collect_mask(S32 lanes) {
  struct Quarters {
    __m256 part[4];
  } quarters = bits<Quarters>(lanes);
  u32 result = 0;
  for (int i = 0; i < 4; ++i) result |= u32(_mm256_movemask_ps(quarters.part[i])) << (8 * i);
  return result;
}

template <class V>
[[gnu::always_inline]] inline V select(S32 mask, V yes, V no) {
  static_assert(sizeof(V) == sizeof(S32));
  return bits<V>((bits<S32>(yes) & mask) | (bits<S32>(no) & ~mask));
}

[[gnu::always_inline]] inline U64 select64(S32 mask, U64 yes, U64 no) {
  const U64 wide = bits<U64>(convert<S64>(mask));
  return (yes & wide) | (no & ~wide);
}

[[gnu::always_inline]] inline U64 join(U32 low, U32 high) {
  return convert<U64>(low) | (convert<U64>(high) << U64(32));
}
[[gnu::always_inline]] inline U32 low_half(U64 value) { return convert<U32>(value); }
[[gnu::always_inline]] inline U32 high_half(U64 value) { return convert<U32>(value >> U64(32)); }

// Applies a scalar function to each lane: for operations that are rare or have no vector form.
template <class R, class Fn, class... Vs>
[[gnu::always_inline]] inline R per_lane(Fn fn, const Vs&... vs) {
  R result;
  for (int lane = 0; lane < kLanes; ++lane) result[lane] = fn(vs[lane]...);
  return result;
}

}  // namespace emu
