// MFMA of gfx9, wave64 (CDNA3 ISA guide 7, "Matrix arithmetic instructions"; register layouts as given by AMD's
// matrix_instruction_calculator). MFMA ignores exec. The order in which hardware adds products is not documented; here
// it is ascending k with fused multiply-adds in f32.
#pragma once
#include <cstring>

#include "machine/access.hpp"
#include "machine/vector_wave.hpp"
#include "semantics/matrix.hpp"

namespace emu::inline EMU_WAVE::sem {

// What one instruction multiplies: kBlocks products of (kSize x depth) and (depth x kSize) matrices. A lane holds kHeld
// consecutive k of one row or column; the 64 / kSize groups of lanes hold the next k each, or with blocks one block each.
struct Matrix {
  int size, held, blocks;
  constexpr int groups() const { return 64 / size; }
  constexpr int depth() const { return blocks == 1 ? held * groups() : held; }
};

// A or B operand as f32, [group][k][row or column]; `kType` f16 and bf16 hold two k per VGPR.
template <Matrix kShape, Half kType>
[[gnu::always_inline]] inline void unpack(const Wave* wave, u32 vgpr, float* out) {
  for (u32 g = 0; g < u32(kShape.held / 2); ++g) {
    for (u32 part = 0; part < 8; ++part) {  // of 8 lanes
      const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(&wave->v[vgpr + g]) + part);
      const u32 group = 8 * part / u32(kShape.size), column = 8 * part % u32(kShape.size);
      float* const low = out + (group * u32(kShape.held) + 2 * g) * u32(kShape.size) + column;
      widen_pairs<kType>(words, low, low + kShape.size);
    }
  }
}
// f32 operands: one VGPR, one k per lane.
template <Matrix kShape>
[[gnu::always_inline]] inline void unpack(const Wave* wave, u32 vgpr, float* out) {
  static_assert(kShape.held == 1);
  std::memcpy(out, &wave->v[vgpr], sizeof(U32));
}

// Where row i of C or D lies in the dwords of its block: VGPR 4 * (i / (4 * groups)) + i % 4, in the group of lanes
// i / 4 % groups.
template <Matrix kShape>
[[gnu::always_inline]] constexpr u32 place_in_block(u32 i) {
  constexpr u32 kGroups = u32(kShape.groups());
  return 64 * (4 * (i / (4 * kGroups)) + i % 4) + i / 4 % kGroups * u32(kShape.size);
}

// D = A * B + C of one block. `c` is null where `uniform` is all of C. C may be D, but not overlap it by some VGPRs.
template <Matrix kShape>
[[gnu::always_inline]] inline void multiply(float* d, const float* c, float uniform, const float* a, const float* b) {
  constexpr u32 kSize = u32(kShape.size), kParts = kSize / 8, kRows = 8 / kParts;
  for (u32 row = 0; row < kSize; row += kRows) {
    __m256 sum[kRows][kParts];
    for (u32 i = 0; i < kRows; ++i)
      for (u32 part = 0; part < kParts; ++part)
        sum[i][part] = c == nullptr ? _mm256_set1_ps(uniform)
                                    : _mm256_load_ps(c + place_in_block<kShape>(row + i) + 8 * part);
    for (u32 k = 0; k < u32(kShape.depth()); ++k) {
      __m256 factors[kParts];
      for (u32 part = 0; part < kParts; ++part) factors[part] = _mm256_load_ps(b + k * kSize + 8 * part);
      for (u32 i = 0; i < kRows; ++i) {
        const __m256 factor = _mm256_broadcast_ss(a + k * kSize + row + i);
        for (u32 part = 0; part < kParts; ++part)
          sum[i][part] = _mm256_fmadd_ps(factor, factors[part], sum[i][part]);
      }
    }
    for (u32 i = 0; i < kRows; ++i)
      for (u32 part = 0; part < kParts; ++part)
        _mm256_store_ps(d + place_in_block<kShape>(row + i) + 8 * part, sum[i][part]);
  }
}

template <Matrix kShape, Half... kType>
[[gnu::noinline]] void mfma(Wave* wave, const Op* op, bool c_is_vgpr) {
  constexpr u32 kBlock = u32(kShape.size * kShape.depth()), kRegisters = u32(kShape.size * kShape.size) / 64;
  alignas(64) float a[64 * kShape.held], b[64 * kShape.held];
  unpack<kShape, kType...>(wave, op->r[1], a);
  unpack<kShape, kType...>(wave, op->r[2], b);
  const float uniform = c_is_vgpr ? 0 : scalar_in<float>(wave, op->r[3]);
  float* const d = reinterpret_cast<float*>(&wave->v[op->r[0]]);
  const float* c = c_is_vgpr ? reinterpret_cast<const float*>(&wave->v[op->r[3]]) : nullptr;
  U32 kept[kRegisters * u32(kShape.blocks)];
  if (c_is_vgpr && c != d) {  // D may overlap C by some VGPRs
    std::memcpy(kept, c, sizeof kept);
    c = reinterpret_cast<const float*>(kept);
  }
  for (u32 block = 0; block < u32(kShape.blocks); ++block)
    multiply<kShape>(d + block * kRegisters * 64, c == nullptr ? nullptr : c + block * kRegisters * 64, uniform,
                     a + block * kBlock, b + block * kBlock);
}

// V_MFMA_F32_*_F16 and _BF16, V_MFMA_F32_*_F32: D = A * B + C.
template <Form F, Matrix kShape, Half... kType>
inline void v_mfma_f32(Wave* wave, const Op* op) {
  mfma<kShape, kType...>(wave, op, F.kind[3] == 'v');
}

}  // namespace emu::inline EMU_WAVE::sem
