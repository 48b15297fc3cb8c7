// Moves data between memory, where a lane's words are neighbours, and VGPRs, where the lanes of a word are.
#pragma once
#include <immintrin.h>

#include <bit>
#include <cstring>

#include "machine/vector_wave.hpp"

namespace emu::inline EMU_WAVE::sem {

// How a loaded value narrower than a dword fills the VGPR.
enum class Fill { kZero, kSign, kLow, kHigh };  // kLow and kHigh keep the other half ("d16")

template <int Bytes, Fill kFill>
[[gnu::always_inline]] inline void put_loaded(Wave* wave, u32 vgpr, int lane, const u8* source) {
  if constexpr (Bytes >= 4) {
    u32 words[Bytes / 4];
    std::memcpy(words, source, Bytes);
    for (int i = 0; i < Bytes / 4; ++i) wave->v[vgpr + i][lane] = words[i];
  } else {
    u32 value = 0;
    std::memcpy(&value, source, Bytes);
    if (kFill == Fill::kSign) value = u32(s32(value << (32 - 8 * Bytes)) >> (32 - 8 * Bytes));
    const u32 old = wave->v[vgpr][lane];
    if (kFill == Fill::kLow) value |= old & 0xFFFF0000;
    if (kFill == Fill::kHigh) value = (value << 16) | (old & 0xFFFF);
    wave->v[vgpr][lane] = value;
  }
}

template <int Bytes, Fill kFill>
[[gnu::always_inline]] inline void get_stored(const Wave* wave, u32 vgpr, int lane, u8* target) {
  if constexpr (Bytes >= 4) {
    u32 words[Bytes / 4];
    for (int i = 0; i < Bytes / 4; ++i) words[i] = wave->v[vgpr + i][lane];
    std::memcpy(target, words, Bytes);
  } else {
    const u32 value = kFill == Fill::kHigh ? wave->v[vgpr][lane] >> 16 : wave->v[vgpr][lane];
    std::memcpy(target, &value, Bytes);
  }
}

// Four lanes of one VGPR.
[[gnu::always_inline]] inline float* quad(Wave* wave, u32 vgpr, int lane) {
  return reinterpret_cast<float*>(&wave->v[vgpr]) + lane;
}

// 16 bytes for each lane, at an offset of its own from `memory`.
[[gnu::always_inline]] inline void load_quads(Wave* wave, u32 vgpr, const u8* memory, U32 offsets) {
  for (int lane = 0; lane < kLanes; lane += 4) {
    __m128 word[4];
    for (int i = 0; i < 4; ++i) word[i] = _mm_loadu_ps(reinterpret_cast<const float*>(memory + offsets[lane + i]));
    _MM_TRANSPOSE4_PS(word[0], word[1], word[2], word[3]);
    for (u32 i = 0; i < 4; ++i) _mm_store_ps(quad(wave, vgpr + i, lane), word[i]);
  }
}

// All active lanes at once; `memory` has their host pointers. Accesses of 16 bytes, the most frequent ones, transpose
// 4 lanes by 4 words where all lanes are active.
template <int Bytes, Fill kFill>
[[gnu::always_inline]] inline void load_lanes(Wave* wave, u32 vgpr, u8* const (&memory)[kLanes]) {
  if (Bytes == 16 && wave->exec() == LaneMask(~LaneMask(0))) {
    for (int lane = 0; lane < kLanes; lane += 4) {
      __m128 word[4];
      for (int i = 0; i < 4; ++i) word[i] = _mm_loadu_ps(reinterpret_cast<const float*>(memory[lane + i]));
      _MM_TRANSPOSE4_PS(word[0], word[1], word[2], word[3]);
      for (u32 i = 0; i < 4; ++i) _mm_store_ps(quad(wave, vgpr + i, lane), word[i]);
    }
    return;
  }
  for (LaneMask rest = wave->exec(); rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    put_loaded<Bytes, kFill>(wave, vgpr, lane, memory[lane]);
  }
}
// Where lanes store to the same place, the highest one wins.
template <int Bytes, Fill kFill>
[[gnu::always_inline]] inline void store_lanes(Wave* wave, u32 vgpr, u8* const (&memory)[kLanes]) {
  if (Bytes == 16 && wave->exec() == LaneMask(~LaneMask(0))) {
    for (int lane = 0; lane < kLanes; lane += 4) {
      __m128 word[4];
      for (u32 i = 0; i < 4; ++i) word[i] = _mm_load_ps(quad(wave, vgpr + i, lane));
      _MM_TRANSPOSE4_PS(word[0], word[1], word[2], word[3]);
      for (int i = 0; i < 4; ++i) _mm_storeu_ps(reinterpret_cast<float*>(memory[lane + i]), word[i]);
    }
    return;
  }
  for (LaneMask rest = wave->exec(); rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    get_stored<Bytes, kFill>(wave, vgpr, lane, memory[lane]);
  }
}

}  // namespace emu::inline EMU_WAVE::sem
