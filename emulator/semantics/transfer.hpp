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

// Every lane's data, at an offset of its own from `memory`.
template <int Bytes, Fill kFill>
[[gnu::always_inline]] inline void load_all(Wave* wave, u32 vgpr, const u8* memory, const U32& offsets) {
  if constexpr (Bytes == 16) {
    for (int lane = 0; lane < kLanes; lane += 4) {
      __m128 word[4];
      for (int i = 0; i < 4; ++i) word[i] = _mm_loadu_ps(reinterpret_cast<const float*>(memory + offsets[lane + i]));
      _MM_TRANSPOSE4_PS(word[0], word[1], word[2], word[3]);
      for (u32 i = 0; i < 4; ++i) _mm_store_ps(quad(wave, vgpr + i, lane), word[i]);
    }
  } else if constexpr (Bytes == 8) {
    for (int lane = 0; lane < kLanes; lane += 4) {
      __m128 pair[2];  // of lanes
      for (int i = 0; i < 2; ++i) {
        const auto* const low = reinterpret_cast<const double*>(memory + offsets[lane + 2 * i]);
        const auto* const high = reinterpret_cast<const double*>(memory + offsets[lane + 2 * i + 1]);
        pair[i] = _mm_castpd_ps(_mm_loadh_pd(_mm_load_sd(low), high));
      }
      _mm_store_ps(quad(wave, vgpr, lane), _mm_shuffle_ps(pair[0], pair[1], 0b10'00'10'00));
      _mm_store_ps(quad(wave, vgpr + 1, lane), _mm_shuffle_ps(pair[0], pair[1], 0b11'01'11'01));
    }
  } else {
    for (int lane = 0; lane < kLanes; ++lane) put_loaded<Bytes, kFill>(wave, vgpr, lane, memory + offsets[lane]);
  }
}
// Where lanes store to the same place, the highest one wins.
template <int Bytes, Fill kFill>
[[gnu::always_inline]] inline void store_all(Wave* wave, u32 vgpr, u8* memory, const U32& offsets) {
  if constexpr (Bytes == 16) {
    for (int lane = 0; lane < kLanes; lane += 4) {
      __m128 word[4];
      for (u32 i = 0; i < 4; ++i) word[i] = _mm_load_ps(quad(wave, vgpr + i, lane));
      _MM_TRANSPOSE4_PS(word[0], word[1], word[2], word[3]);
      for (int i = 0; i < 4; ++i) _mm_storeu_ps(reinterpret_cast<float*>(memory + offsets[lane + i]), word[i]);
    }
  } else if constexpr (Bytes == 8) {
    for (int lane = 0; lane < kLanes; lane += 4) {
      const __m128 low = _mm_load_ps(quad(wave, vgpr, lane)), high = _mm_load_ps(quad(wave, vgpr + 1, lane));
      const __m128d pair[2] = {_mm_castps_pd(_mm_unpacklo_ps(low, high)), _mm_castps_pd(_mm_unpackhi_ps(low, high))};
      for (int i = 0; i < 2; ++i) {
        _mm_storel_pd(reinterpret_cast<double*>(memory + offsets[lane + 2 * i]), pair[i]);
        _mm_storeh_pd(reinterpret_cast<double*>(memory + offsets[lane + 2 * i + 1]), pair[i]);
      }
    }
  } else {
    for (int lane = 0; lane < kLanes; ++lane) get_stored<Bytes, kFill>(wave, vgpr, lane, memory + offsets[lane]);
  }
}
template <Access kAccess, int Bytes, Fill kFill>
[[gnu::always_inline]] inline void transfer_all(Wave* wave, u32 vgpr, u8* memory, const U32& offsets) {
  if constexpr (kAccess == Access::kLoad)
    load_all<Bytes, kFill>(wave, vgpr, memory, offsets);
  else
    store_all<Bytes, kFill>(wave, vgpr, memory, offsets);
}

// The lanes' offsets where all are active and one allocation holds all their accesses.
class AllLanes {
 public:
  template <Access kAccess>
  [[gnu::always_inline]] bool find(Wave* wave, const Op* op, u64 base, const U32& from_base, u32 bytes) {
    if (wave->exec() != LaneMask(~LaneMask(0))) return false;
    first_ = __builtin_reduce_min(from_base);
    last_ = __builtin_reduce_max(from_base);
    const u64 begin = base + first_, size = u64(last_) - first_ + bytes;
    memory_ = recent_pointer<kAccess>(wave, op, begin, size);
    if (memory_ == nullptr) [[unlikely]]
      memory_ = find_range(wave, op, begin, size, kAccess);
    offsets_ = from_base - U32(first_);
    return memory_ != nullptr;
  }
  u32 last() const { return last_; }
  u8* memory() const { return memory_; }
  const U32& offsets() const { return offsets_; }

 private:
  u32 first_ = 0, last_ = 0;
  u8* memory_ = nullptr;
  U32 offsets_;
};

}  // namespace emu::inline EMU_WAVE::sem
