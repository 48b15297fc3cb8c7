// What WMMA and MFMA share: 16-bit operands as f32.
#pragma once
#include <immintrin.h>

#include "machine/types.hpp"

namespace emu::inline EMU_WAVE::sem {

enum class Half { kF16, kBf16 };

// The low and the high halves of 8 dwords, as f32.
template <Half kType>
[[gnu::always_inline]] inline void widen_pairs(__m256i words, float* low, float* high) {
  if constexpr (kType == Half::kBf16) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(low), _mm256_slli_epi32(words, 16));
    _mm256_store_si256(reinterpret_cast<__m256i*>(high), _mm256_and_si256(words, _mm256_set1_epi32(s32(0xFFFF0000))));
  } else {
    const __m256i apart = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15,  //
                                           0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    const __m256i halves = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(words, apart), 0xD8);
    _mm256_store_ps(low, _mm256_cvtph_ps(_mm256_castsi256_si128(halves)));
    _mm256_store_ps(high, _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1)));
  }
}

}  // namespace emu::inline EMU_WAVE::sem
