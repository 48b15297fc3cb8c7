// WMMA of gfx11, wave32 (RDNA3 ISA guide 7.9, "Wave matrix multiply accumulate"; register layouts as given by AMD's
// matrix_instruction_calculator). A and B take 8 VGPRs, of which lanes 16-31 must repeat lanes 0-15: where they do not,
// hardware mixes both, so it stops the wave. WMMA ignores exec. Sums are taken as in semantics/wmma.hpp.
#pragma once
#include <string>

#include "machine/access.hpp"
#include "machine/vector_wave.hpp"
#include "semantics/atomic.hpp"
#include "semantics/wmma.hpp"

namespace emu::inline EMU_WAVE::sem {

// A or B operand -> f32 as [k][row or column]: lane % 16 is the row or column, k = 2 * g + half. False after a fault.
template <Half kType>
[[gnu::always_inline]] inline bool unpack_replicated(Wave* wave, const Op* op, int operand, float (&out)[16][16]) {
  for (u32 g = 0; g < 8; ++g) {
    const __m256i* const lanes = reinterpret_cast<const __m256i*>(&wave->v[op->r[operand] + g]);
    const __m256i low = _mm256_load_si256(lanes), high = _mm256_load_si256(lanes + 1);
    const __m256i differ = _mm256_or_si256(_mm256_xor_si256(low, _mm256_load_si256(lanes + 2)),
                                           _mm256_xor_si256(high, _mm256_load_si256(lanes + 3)));
    if (!_mm256_testz_si256(differ, differ)) [[unlikely]] {
      stop_with_fault(wave, op,
                      "lanes 16-31 of v" + std::to_string(op->r[operand] + g) +
                          " do not repeat lanes 0-15, as both operands of WMMA must");
      return false;
    }
    widen_pairs<kType>(low, &out[2 * g][0], &out[2 * g + 1][0]);
    widen_pairs<kType>(high, &out[2 * g][8], &out[2 * g + 1][8]);
  }
  return true;
}

// C and D: row = 2 * g + lane / 16, column = lane % 16, so that the registers in order are the matrix.
[[gnu::always_inline]] constexpr u32 place_in_order(u32 row) { return 64 * row; }

// V_WMMA_F32_16X16X16_F16, V_WMMA_F32_16X16X16_BF16: D = A * B + C.
template <Half kType>
[[gnu::noinline]] bool wmma_f32_replicated(Wave* wave, const Op* op, bool c_is_vgpr) {
  alignas(64) float a[16][16], b[16][16];
  if (!unpack_replicated<kType>(wave, op, 1, a) || !unpack_replicated<kType>(wave, op, 2, b)) return false;
  multiply_add_f32<place_in_order>(wave, op, a, b, c_is_vgpr);
  return true;
}
template <Form F, Half kType>
inline bool v_wmma_f32_replicated(Wave* wave, const Op* op) {
  return wmma_f32_replicated<kType>(wave, op, F.kind[3] == 'v');
}

// V_WMMA_F16_16X16X16_F16, V_WMMA_BF16_16X16X16_BF16: the same layout with 16-bit C and D in the halves that op_sel[2]
// names; the other halves are kept. The sum is rounded once.
template <Half kType>
[[gnu::noinline]] bool wmma_half_replicated(Wave* wave, const Op* op, bool c_is_vgpr, bool high) {
  alignas(64) float a[16][16], b[16][16], d[16][16];
  if (!unpack_replicated<kType>(wave, op, 1, a) || !unpack_replicated<kType>(wave, op, 2, b)) return false;
  const auto widen = [](u32 half) { return kType == Half::kF16 ? half_value(PackedF16{}, half) : bits<float>(half << 16); };
  const auto narrow = [](float value) {
    return (kType == Half::kF16 ? half_bits(PackedF16{}, value) : half_bits(PackedBf16{}, value)) & 0xFFFF;
  };
  const u32 shift = high ? 16 : 0;
  for (u32 i = 0; i < 256; ++i) {
    const u32 word = c_is_vgpr ? wave->v[op->r[3] + i / 32][i % 32] >> shift : wave->s[op->r[3]];
    d[i / 16][i % 16] = widen(word & 0xFFFF);
  }
  char* const sums = reinterpret_cast<char*>(d);
  multiply_16x16x16<place_in_order>(a, b, sums, 0, sums);
  for (u32 i = 0; i < 256; ++i) {
    U32& target = wave->v[op->r[0] + i / 32];
    target[i % 32] = (target[i % 32] & ~(0xFFFFu << shift)) | narrow(d[i / 16][i % 16]) << shift;
  }
  return true;
}
template <Form F, Half kType>
inline bool v_wmma_half_replicated(Wave* wave, const Op* op) {
  return wmma_half_replicated<kType>(wave, op, F.kind[3] == 'v', (F.op_sel & 4) != 0);
}

}  // namespace emu::inline EMU_WAVE::sem
