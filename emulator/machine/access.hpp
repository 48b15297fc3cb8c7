// How handlers read and write registers: typed views of VGPRs and of the scalar file, with exec applied to vector
// results.
#pragma once
#include "machine/lanes.hpp"
#include "machine/vector_wave.hpp"

namespace emu::inline EMU_WAVE {

template <class T>
[[gnu::always_inline]] inline T scalar_in(const Wave* wave, u32 slot) {
  if constexpr (sizeof(T) == 4) {
    return bits<T>(wave->s[slot]);
  } else {
    return bits<T>(u64(wave->s[slot]) | (u64(wave->s[slot + 1]) << 32));
  }
}

template <class T>
[[gnu::always_inline]] inline void scalar_out(Wave* wave, u32 slot, T value) {
  if constexpr (sizeof(T) == 4) {
    wave->s[slot] = bits<u32>(value);
  } else {
    const u64 raw = bits<u64>(value);
    wave->s[slot] = u32(raw);
    wave->s[slot + 1] = u32(raw >> 32);
  }
}

template <class V>
[[gnu::always_inline]] inline V vector_in(const Wave* wave, u32 vgpr) {
  if constexpr (sizeof(V) == sizeof(U32)) {
    return bits<V>(wave->v[vgpr]);
  } else {
    return bits<V>(join(wave->v[vgpr], wave->v[vgpr + 1]));
  }
}

// After a scalar result went to exec or a half of it.
[[gnu::always_inline]] inline void exec_changed(Wave* wave) { wave->exec_lanes = expand_mask(wave->exec()); }

template <class V>
[[gnu::always_inline]] inline V splat_in(const Wave* wave, u32 slot) {
  return V(scalar_in<typename ScalarOf<V>::type>(wave, slot));
}

// A lane mask held in a scalar register (vcc or an SGPR; a pair in wave64).
[[gnu::always_inline]] inline S32 mask_in(const Wave* wave, u32 slot) {
  return expand_mask(scalar_in<LaneMask>(wave, slot));
}
[[gnu::always_inline]] inline void mask_out(Wave* wave, u32 slot, S32 lanes) {
  scalar_out<LaneMask>(wave, slot, collect_mask(lanes) & wave->exec());  // inactive lanes give 0
}

template <class V>
[[gnu::always_inline]] inline void vector_out(Wave* wave, u32 vgpr, V value) {
  if constexpr (sizeof(V) == sizeof(U32)) {
    wave->v[vgpr] = select(wave->exec_lanes, bits<U32>(value), wave->v[vgpr]);
  } else {
    const U64 raw = bits<U64>(value);
    wave->v[vgpr] = select(wave->exec_lanes, low_half(raw), wave->v[vgpr]);
    wave->v[vgpr + 1] = select(wave->exec_lanes, high_half(raw), wave->v[vgpr + 1]);
  }
}

// The same for those lanes only: a part of the active ones.
[[gnu::always_inline]] inline void vector_out(Wave* wave, u32 vgpr, U32 value, S32 lanes) {
  wave->v[vgpr] = select(lanes, value, wave->v[vgpr]);
}
template <class V>
[[gnu::always_inline]] inline void vector_out(Wave* wave, u32 vgpr, V value, S32 lanes) {
  static_assert(sizeof(V) == sizeof(U32));
  vector_out(wave, vgpr, bits<U32>(value), lanes);
}

// f16 to and from f32, exact widening and round to nearest even (F16C).
[[gnu::always_inline]] inline F32 widen_f16(U32 low_halves) {
  F32 result;
  for (int part = 0; part < kLanes / 8; ++part) {
    __m256i words;
    std::memcpy(&words, reinterpret_cast<const char*>(&low_halves) + 32 * part, 32);
    words = _mm256_and_si256(words, _mm256_set1_epi32(0xFFFF));
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(words, words), 0x08);
    const __m256 wide = _mm256_cvtph_ps(_mm256_castsi256_si128(packed));
    std::memcpy(reinterpret_cast<char*>(&result) + 32 * part, &wide, 32);
  }
  return result;
}
template <int Rounding = _MM_FROUND_TO_NEAREST_INT>
[[gnu::always_inline]] inline U32 narrow_f16(F32 values) {
  U32 result;
  for (int part = 0; part < kLanes / 8; ++part) {
    __m256 wide;
    std::memcpy(&wide, reinterpret_cast<const char*>(&values) + 32 * part, 32);
    const __m256i words = _mm256_cvtepu16_epi32(_mm256_cvtps_ph(wide, Rounding | _MM_FROUND_NO_EXC));
    std::memcpy(reinterpret_cast<char*>(&result) + 32 * part, &words, 32);
  }
  return result;
}

// 16-bit operands: the half named in the text (low where none is named); a result leaves the other half of the VGPR
// alone.
[[gnu::always_inline]] inline U32 half_in(const Wave* wave, u32 vgpr, bool high) {
  return high ? wave->v[vgpr] >> U32(16) : wave->v[vgpr] & U32(0xFFFF);
}
[[gnu::always_inline]] inline void half_out(Wave* wave, u32 vgpr, bool high, U32 value) {
  const U32 old = wave->v[vgpr];
  const U32 merged = high ? (old & U32(0xFFFF)) | (value << U32(16)) : (old & U32(0xFFFF0000)) | (value & U32(0xFFFF));
  vector_out(wave, vgpr, merged);
}

// Source and result modifiers of VOP3 for floats (ISA guide 7.2, "Input/output modifiers").
template <class V>
[[gnu::always_inline]] inline V negate(V a) {
  return -a;
}
template <>
inline F32 negate(F32 a) {
  return bits<F32>(bits<U32>(a) ^ U32(0x80000000));
}
template <>
inline F64 negate(F64 a) {
  return bits<F64>(bits<U64>(a) ^ U64(u64(1) << 63));
}
[[gnu::always_inline]] inline F32 absolute(F32 a) { return bits<F32>(bits<U32>(a) & U32(0x7FFFFFFF)); }
[[gnu::always_inline]] inline F64 absolute(F64 a) { return bits<F64>(bits<U64>(a) & U64(~u64(0) >> 1)); }
// clamp: to [0, 1], NaN becomes 0.
template <class V>
[[gnu::always_inline]] inline V clamp(V a) {
  return __builtin_elementwise_min(__builtin_elementwise_max(a, V(0)), V(1));
}
[[gnu::always_inline]] inline F32 clamp(F32 a) {
  const F32 low = select(a > F32(0), a, F32(0));
  return select(low < F32(1), low, F32(1));
}

// Kinds of the operands of a shape, for handlers that must tell them apart ('v' VGPR, 'u' scalar or constant, '-' off,
// 't' text).
struct Form {
  char kind[6] = {};
  bool offen = false, idxen = false;
  u32 op_sel = 0, high = 0;  // a bit per source (op_sel) or per operand that is a high half
};

}  // namespace emu::inline EMU_WAVE
