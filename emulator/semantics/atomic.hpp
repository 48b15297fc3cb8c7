// What atomic instructions make of a value in memory (RDNA3 ISA guide 16, DS_* and GLOBAL_ATOMIC_*). One function for LDS,
// buffer, global and flat atomics of all families.
#pragma once
#include <immintrin.h>

#include <cmath>
#include <cstring>

#include "machine/vector_wave.hpp"

namespace emu::inline EMU_WAVE::sem {

enum class AtomicOp {
  kAdd,
  kSub,
  kReverseSub,  // data - memory
  kInc,         // up to the data, then 0
  kDec,         // down to 0, then the data
  kMin,         // a NaN never compares less or greater, so the memory keeps its value
  kMax,
  kMinNum,  // a number wins over a NaN, -0 < +0
  kMaxNum,
  kAnd,
  kOr,
  kXor,
  kSwap,
  kMaskOr,       // first operand: bits to clear, second: bits to set
  kCompareSwap,  // first operand: new value, second: what the memory must hold
  kSubClamp,     // not below 0
  kCondSub       // only where the result is not below 0
};

// Two 16-bit floats, low half first.
struct PackedF16 {
  u32 halves;
};
struct PackedBf16 {
  u32 halves;
};
inline float half_value(PackedF16, u32 half) { return _cvtsh_ss(u16(half)); }
inline float half_value(PackedBf16, u32 half) { return bits<float>(half << 16); }
inline u32 half_bits(PackedF16, float value) { return u16(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT)); }
inline u32 half_bits(PackedBf16, float value) {  // to nearest even
  const u32 raw = bits<u32>(value);
  return value != value ? (raw >> 16) | 0x40 : (raw + 0x7FFF + ((raw >> 16) & 1)) >> 16;
}
template <class T>
T packed_sum(T a, T b) {
  const auto half = [&](u32 shift) {
    const float sum = half_value(a, (a.halves >> shift) & 0xFFFF) + half_value(b, (b.halves >> shift) & 0xFFFF);
    return (half_bits(a, sum) & 0xFFFF) << shift;
  };
  return {half(0) | half(16)};
}
inline PackedF16 operator+(PackedF16 a, PackedF16 b) { return packed_sum(a, b); }
inline PackedBf16 operator+(PackedBf16 a, PackedBf16 b) { return packed_sum(a, b); }

template <class T>
T smaller_number(T a, T b) {
  if (a != a) return b;
  if (b != b || a < b) return a;
  return a == b && std::signbit(a) ? a : b;
}

// The new value of the memory. T is the type of the memory and of both operands.
template <AtomicOp kOp, class T>
inline T atomic_result(T memory, T data, [[maybe_unused]] T second) {
  if constexpr (kOp == AtomicOp::kAdd) {
    return memory + data;
  } else if constexpr (kOp == AtomicOp::kSub) {
    return memory - data;
  } else if constexpr (kOp == AtomicOp::kReverseSub) {
    return data - memory;
  } else if constexpr (kOp == AtomicOp::kInc) {
    return memory >= data ? T(0) : memory + T(1);
  } else if constexpr (kOp == AtomicOp::kDec) {
    return memory == 0 || memory > data ? data : memory - T(1);
  } else if constexpr (kOp == AtomicOp::kMin) {
    return data < memory ? data : memory;
  } else if constexpr (kOp == AtomicOp::kMax) {
    return data > memory ? data : memory;
  } else if constexpr (kOp == AtomicOp::kMinNum) {
    return smaller_number(data, memory);
  } else if constexpr (kOp == AtomicOp::kMaxNum) {
    return -smaller_number(T(-data), T(-memory));
  } else if constexpr (kOp == AtomicOp::kAnd) {
    return memory & data;
  } else if constexpr (kOp == AtomicOp::kOr) {
    return memory | data;
  } else if constexpr (kOp == AtomicOp::kXor) {
    return memory ^ data;
  } else if constexpr (kOp == AtomicOp::kSwap) {
    return data;
  } else if constexpr (kOp == AtomicOp::kMaskOr) {
    return (memory & ~data) | second;
  } else if constexpr (kOp == AtomicOp::kCompareSwap) {
    return memory == second ? data : memory;
  } else if constexpr (kOp == AtomicOp::kSubClamp) {
    return memory < data ? T(0) : memory - data;
  } else {
    static_assert(kOp == AtomicOp::kCondSub);
    return memory >= data ? memory - data : memory;
  }
}
constexpr bool has_two_operands(AtomicOp op) { return op == AtomicOp::kMaskOr || op == AtomicOp::kCompareSwap; }

// One lane's value of type T in as many VGPRs as it needs.
template <class T>
inline T lane_value(const Wave* wave, u32 vgpr, int lane) {
  u32 words[sizeof(T) / 4];
  for (u32 i = 0; i < sizeof(T) / 4; ++i) words[i] = wave->v[vgpr + i][lane];
  T value;
  std::memcpy(&value, words, sizeof value);
  return value;
}
template <class T>
inline void set_lane_value(Wave* wave, u32 vgpr, int lane, T value) {
  u32 words[sizeof(T) / 4];
  std::memcpy(words, &value, sizeof value);
  for (u32 i = 0; i < sizeof(T) / 4; ++i) wave->v[vgpr + i][lane] = words[i];
}

// Changes the memory; returns what it held.
template <AtomicOp kOp, class T>
inline T apply_atomic(u8* memory, T data, T second) {
  T before;
  std::memcpy(&before, memory, sizeof before);
  const T after = atomic_result<kOp, T>(before, data, second);
  std::memcpy(memory, &after, sizeof after);
  return before;
}

}  // namespace emu::inline EMU_WAVE::sem
