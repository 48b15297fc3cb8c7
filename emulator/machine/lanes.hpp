// Vector types of one value per lane of a wave, and the bit tricks that every semantic function needs.
//
// Whatever depends on the number of lanes is compiled once per wave size: a source file sets EMU_LANES to 32 or 64
// before it includes this, and all of it lives in an inline namespace of that size, so that both sizes fit into one
// library.
#pragma once
#include <immintrin.h>

#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "machine/types.hpp"

#if EMU_LANES == 32
#define EMU_WAVE wave32
#elif EMU_LANES == 64
#define EMU_WAVE wave64
#else
#error "EMU_LANES must be 32 or 64"
#endif

namespace emu::inline EMU_WAVE {

inline constexpr int kLanes = EMU_LANES;
using LaneMask = std::conditional_t<kLanes == 32, u32, u64>;  // one bit per lane: exec, vcc, results of compares

// Clang vector types; 32 lanes are four AVX2 registers. Masks are S32 with 0 or -1 per lane.
using U32 = u32 __attribute__((ext_vector_type(kLanes)));
using S32 = s32 __attribute__((ext_vector_type(kLanes)));
using F32 = float __attribute__((ext_vector_type(kLanes)));
using U64 = u64 __attribute__((ext_vector_type(kLanes)));
using S64 = s64 __attribute__((ext_vector_type(kLanes)));
using F64 = double __attribute__((ext_vector_type(kLanes)));

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

template <class To, class From>
[[gnu::always_inline]] inline To convert(From from) {
  return __builtin_convertvector(from, To);
}

[[gnu::always_inline]] inline U32 lane_numbers() {
  alignas(128) static constexpr auto kNumbers = [] {
    std::array<u32, kLanes> numbers{};
    for (u32 i = 0; i < kLanes; ++i) numbers[i] = i;
    return numbers;
  }();
  return std::bit_cast<U32>(kNumbers);
}

template <class V>
[[gnu::always_inline]] inline V select(S32 mask, V yes, V no) {
  static_assert(sizeof(V) == sizeof(S32));
  return bits<V>((bits<S32>(yes) & mask) | (bits<S32>(no) & ~mask));
}

// One bit per lane -> 0 or -1 per lane.
[[gnu::always_inline]] inline S32 expand_mask(LaneMask mask) {
  U32 words = U32(u32(mask));
  if constexpr (kLanes == 64) words = select(lane_numbers() < U32(32), words, U32(u32(u64(mask) >> 32)));
  return bits<S32>((words >> (lane_numbers() & U32(31))) & U32(1)) != S32(0);
}

// Sign bit of each lane -> one bit per lane.
[[gnu::always_inline]] inline LaneMask collect_mask(S32 lanes) {
  struct Parts {
    __m256 part[kLanes / 8];
  } parts = bits<Parts>(lanes);
  LaneMask result = 0;
  for (int i = 0; i < kLanes / 8; ++i) result |= LaneMask(_mm256_movemask_ps(parts.part[i])) << (8 * i);
  return result;
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

}  // namespace emu::inline EMU_WAVE
