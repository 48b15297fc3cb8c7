// WMMA of gfx12, wave32 (RDNA4 ISA guide 7.9, "Wave matrix multiply accumulate"; register layouts as given by AMD's
// matrix_instruction_calculator). WMMA ignores exec. The order in which hardware adds products is not documented; here
// it is ascending k with fused multiply-adds in f32.
#pragma once
#include <algorithm>
#include <cstring>

#include "machine/access.hpp"
#include "machine/vector_wave.hpp"
#include "semantics/matrix.hpp"

namespace emu::inline EMU_WAVE::sem {

// A or B operand, 16x16 halves in 4 VGPRs -> f32 as [k][row or column]: lane % 16 is the row or column,
// k = 8 * (g / 2) + 4 * (lane / 16) + 2 * (g % 2) + half.
template <Half kType>
[[gnu::always_inline]] inline void unpack_16x16(const Wave* wave, u32 vgpr, float (&out)[16][16]) {
  for (u32 g = 0; g < 4; ++g) {
    const u32 k = 8 * (g / 2) + 2 * (g % 2);
    for (u32 part = 0; part < 4; ++part) {  // of 8 lanes
      const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(&wave->v[vgpr + g]) + part);
      const u32 row = k + 4 * (part / 2), first = 8 * (part % 2);
      widen_pairs<kType>(words, &out[row][first], &out[row + 1][first]);
    }
  }
}

// Where a row of C or D (f32, 8 VGPRs) lies behind the first VGPR, in bytes: row = 8 * (lane / 16) + g, column = lane % 16.
[[gnu::always_inline]] constexpr u32 place_of_row(u32 row) { return u32(sizeof(U32)) * (row % 8) + 64 * (row / 8); }

// Rows `row` to `row` + kRows - 1 of D = A * B + C, which lie where kPlace says. `c` is null where `uniform` is all of
// C. As many rows at once as AVX2 has registers for, so that latencies overlap.
template <u32 kRows, u32 (*kPlace)(u32)>
[[gnu::always_inline]] inline void multiply_rows(u32 row, const float (&a)[16][16], const float (&b)[16][16],
                                                 const char* c, float uniform, char* d) {
  __m256 sum[kRows][2];
  for (u32 i = 0; i < kRows; ++i)
    for (u32 part = 0; part < 2; ++part)
      sum[i][part] = c == nullptr
                         ? _mm256_set1_ps(uniform)
                         : _mm256_load_ps(reinterpret_cast<const float*>(c + kPlace(row + i) + 32 * part));
#pragma clang loop unroll(disable)  // unrolled it takes half as long again
  for (u32 k = 0; k < 16; ++k) {
    const __m256 b0 = _mm256_load_ps(&b[k][0]), b1 = _mm256_load_ps(&b[k][8]);
    for (u32 i = 0; i < kRows; ++i) {
      const __m256 factor = _mm256_broadcast_ss(&a[k][row + i]);
      sum[i][0] = _mm256_fmadd_ps(factor, b0, sum[i][0]);
      sum[i][1] = _mm256_fmadd_ps(factor, b1, sum[i][1]);
    }
  }
  for (u32 i = 0; i < kRows; ++i)
    for (u32 part = 0; part < 2; ++part)
      _mm256_store_ps(reinterpret_cast<float*>(d + kPlace(row + i) + 32 * part), sum[i][part]);
}

template <u32 (*kPlace)(u32)>
[[gnu::always_inline]] inline void multiply_16x16x16(const float (&a)[16][16], const float (&b)[16][16], const char* c,
                                                     float uniform, char* d) {
  multiply_rows<6, kPlace>(0, a, b, c, uniform, d);
  multiply_rows<6, kPlace>(6, a, b, c, uniform, d);
  multiply_rows<4, kPlace>(12, a, b, c, uniform, d);
}

// D = A * B + C for the operands C and D of an instruction, in float32.
template <u32 (*kPlace)(u32)>
[[gnu::always_inline]] inline void multiply_add_f32(Wave* wave, const Op* op, const float (&a)[16][16],
                                                    const float (&b)[16][16], bool c_is_vgpr) {
  const float uniform = c_is_vgpr ? 0 : scalar_in<float>(wave, op->r[3]);
  const char* c = c_is_vgpr ? reinterpret_cast<const char*>(&wave->v[op->r[3]]) : nullptr;
  U32 kept[8];
  if (c_is_vgpr && op->r[3] != op->r[0]) {  // D may overlap C by some VGPRs
    std::memcpy(kept, c, sizeof kept);
    c = reinterpret_cast<const char*>(kept);
  }
  multiply_16x16x16<kPlace>(a, b, c, uniform, reinterpret_cast<char*>(&wave->v[op->r[0]]));
}

template <Half kType>
[[gnu::noinline]] void wmma_f32_16x16x16(Wave* wave, const Op* op, bool c_is_vgpr) {
  alignas(64) float a[16][16], b[16][16];
  unpack_16x16<kType>(wave, op->r[1], a);
  unpack_16x16<kType>(wave, op->r[2], b);
  multiply_add_f32<place_of_row>(wave, op, a, b, c_is_vgpr);
}

// V_WMMA_F32_16X16X16_F16, V_WMMA_F32_16X16X16_BF16: D = A * B + C.
template <Form F, Half kType>
inline void v_wmma_f32(Wave* wave, const Op* op) {
  wmma_f32_16x16x16<kType>(wave, op, F.kind[3] == 'v');
}

}  // namespace emu::inline EMU_WAVE::sem
