// Operations that move data between lanes or between lanes and scalars. Capital names are entries of the RDNA4 ISA
// guide, chapter 16.
#pragma once
#include "machine/access.hpp"
#include "machine/vector_wave.hpp"

namespace emu::inline EMU_WAVE::sem {

// V_READFIRSTLANE_B32: the value of the lowest active lane, of lane 0 where none is active.
template <Form F>
inline void v_readfirstlane(Wave* wave, const Op* op) {
  if constexpr (F.kind[1] == 'v') {
    const LaneMask exec = wave->exec();
    wave->s[op->r[0]] = wave->v[op->r[1]][exec == 0 ? 0 : std::countr_zero(exec)];
  } else {
    wave->s[op->r[0]] = wave->s[op->r[1]];
  }
}
// V_READLANE_B32: the value of lane S1[4:0] (S1[5:0] in wave64), active or not.
template <Form F>
inline void v_readlane(Wave* wave, const Op* op) {
  wave->s[op->r[0]] = wave->v[op->r[1]][wave->s[op->r[2]] & (kLanes - 1)];
}
// V_WRITELANE_B32: writes S0 to that lane, active or not.
template <Form F>
inline void v_writelane(Wave* wave, const Op* op) {
  wave->v[op->r[0]][wave->s[op->r[2]] & (kLanes - 1)] = wave->s[op->r[1]];
}
// DS_BPERMUTE_B32: each lane reads lane (vaddr + offset)[6:2], [7:2] in wave64; an inactive source gives 0.
template <Form F>
inline void ds_bpermute(Wave* wave, const Op* op) {
  const U32 sources = ((wave->v[op->r[1]] + U32(u32(op->offset))) >> U32(2)) & U32(kLanes - 1);
  const U32 data = select(wave->exec_lanes, wave->v[op->r[2]], U32(0));
  U32 result;
  for (int lane = 0; lane < kLanes; ++lane) result[lane] = data[sources[lane] & (kLanes - 1)];
  vector_out(wave, op->r[0], result);
}
// DS_PERMUTE_B32: each active lane writes its data to lane (vaddr + offset)[6:2], [7:2] in wave64; the highest lane
// wins, others get 0.
template <Form F>
inline void ds_permute(Wave* wave, const Op* op) {
  const U32 targets = ((wave->v[op->r[1]] + U32(u32(op->offset))) >> U32(2)) & U32(kLanes - 1);
  U32 result = U32(0);
  for (int lane = 0; lane < kLanes; ++lane)
    if ((wave->exec() >> lane) & 1) result[targets[lane] & (kLanes - 1)] = wave->v[op->r[2]][lane];
  vector_out(wave, op->r[0], result);
}
// DS_SWIZZLE_B32: each lane reads another as the offset says: four of a quad (bit 15 set), or, within 32 lanes, lane
// ((i & and) | or) ^ xor of its fields [4:0], [9:5] and [14:10]; an inactive source gives 0.
template <Form F>
inline void ds_swizzle(Wave* wave, const Op* op) {
  const u32 pattern = u32(op->offset);
  const U32 data = select(wave->exec_lanes, wave->v[op->r[1]], U32(0));
  U32 result;
  for (u32 lane = 0; lane < u32(kLanes); ++lane) {
    const u32 within = (pattern & 0x8000) != 0 ? (lane & 0x1C) | ((pattern >> (2 * (lane & 3))) & 3)
                                               : (((lane & pattern) | (pattern >> 5)) ^ (pattern >> 10)) & 31;
    result[lane] = data[(lane & ~31u) | (within & 31)];
  }
  vector_out(wave, op->r[0], result);
}
// V_PERMLANE32_SWAP_B32, V_PERMLANE16_SWAP_B32 (CDNA4 ISA guide): the upper 32 lanes of the first register, or its odd
// rows of 16, change places with the lower lanes or the even rows of the second.
template <Form F, int kRow>
inline bool v_permlane_swap(Wave* wave, const Op* op) {
  if (wave->exec() != LaneMask(~LaneMask(0))) {
    stop_with_fault(wave, op, "a swap of rows with inactive lanes is not documented");
    return false;
  }
  const U32 first = wave->v[op->r[0]], second = wave->v[op->r[1]];
  const S32 odd = bits<S32>(lane_numbers() & U32(kRow)) != S32(0);
  U32 from_second = first, from_first = second;
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((lane & kRow) != 0)
      from_second[lane] = second[lane ^ kRow];
    else
      from_first[lane] = first[lane ^ kRow];
  }
  wave->v[op->r[0]] = select(odd, from_second, first);
  wave->v[op->r[1]] = select(odd, second, from_first);
  return true;
}
// V_ACCVGPR_READ_B32, V_ACCVGPR_WRITE_B32, V_ACCVGPR_MOV_B32: between VGPRs and accumulation registers.
template <Form F>
inline void v_accvgpr_move(Wave* wave, const Op* op) {
  vector_out(wave, op->r[0], F.kind[1] == 'v' ? wave->v[op->r[1]] : U32(wave->s[op->r[1]]));
}
// V_PERMLANE16_B32, V_PERMLANEX16_B32: lane i reads its own or the other row of 16, at the position that nibble i % 16 of
// {S2, S1} names. op_sel[0] fetches from inactive lanes; where it does not, op_sel[1] says that they give 0, else the
// lane gets no result.
template <Form F, u32 kRow>
inline void permlane16(Wave* wave, const Op* op) {
  const u64 selectors = (u64(wave->s[op->r[3]]) << 32) | wave->s[op->r[2]];
  const U32 data = wave->v[op->r[1]];
  U32 result;
  if (wave->exec() == LaneMask(~LaneMask(0))) {
    const __m256i shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    __m256i sources[2];  // for lanes 0-7 and 8-15 of a row
    for (int part = 0; part < 2; ++part)
      sources[part] = _mm256_srlv_epi32(_mm256_set1_epi32(s32(wave->s[op->r[2 + part]])), shifts);
    for (u32 row = 0; row < u32(kLanes); row += 16) {
      const char* const from = reinterpret_cast<const char*>(&data) + 4 * (row ^ kRow);
      __m256i low, high;
      std::memcpy(&low, from, 32);
      std::memcpy(&high, from + 32, 32);
      for (u32 part = 0; part < 2; ++part) {
        // Bit 3 of a source, moved to the sign, says which half of the row.
        const __m256 picked = _mm256_blendv_ps(_mm256_castsi256_ps(_mm256_permutevar8x32_epi32(low, sources[part])),
                                               _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(high, sources[part])),
                                               _mm256_castsi256_ps(_mm256_slli_epi32(sources[part], 28)));
        std::memcpy(reinterpret_cast<char*>(&result) + 4 * row + 32 * part, &picked, 32);
      }
    }
    wave->v[op->r[0]] = result;
    return;
  }
  for (u32 lane = 0; lane < u32(kLanes); ++lane) {
    const u32 source = ((lane & ~15u) ^ kRow) | u32((selectors >> (4 * (lane & 15))) & 15);
    const bool valid = (F.op_sel & 1) != 0 || ((wave->exec() >> source) & 1) != 0;
    result[lane] = valid ? data[source] : (F.op_sel & 2) != 0 ? 0 : u32(wave->v[op->r[0]][lane]);
  }
  vector_out(wave, op->r[0], result);
}
template <Form F>
inline void v_permlane16(Wave* wave, const Op* op) {
  permlane16<F, 0>(wave, op);
}
template <Form F>
inline void v_permlanex16(Wave* wave, const Op* op) {
  permlane16<F, 16>(wave, op);
}
// V_PERMLANE64_B32: exchanges the halves of a wave64; a wave32 has none, and it does nothing.
template <Form F>
inline void v_permlane64(Wave* wave, const Op* op) {
  if constexpr (kLanes == 64) {
    const U32 data = wave->v[op->r[1]];
    U32 result;
    for (int lane = 0; lane < kLanes; ++lane) result[lane] = data[lane ^ 32];
    vector_out(wave, op->r[0], result);
  }
}
// V_SWAP_B32: exchanges two registers, in active lanes.
template <Form F>
inline void v_swap(Wave* wave, const Op* op) {
  const U32 first = wave->v[op->r[0]];
  vector_out(wave, op->r[0], wave->v[op->r[1]]);
  vector_out(wave, op->r[1], first);
}
// V_SWAP_B16: the same for halves.
template <Form F>
inline void v_swap_half(Wave* wave, const Op* op) {
  const U32 first = half_in(wave, op->r[0], (F.high & 1) != 0);
  half_out(wave, op->r[0], (F.high & 1) != 0, half_in(wave, op->r[1], (F.high & 2) != 0));
  half_out(wave, op->r[1], (F.high & 2) != 0, first);
}

// S_AND_SAVEEXEC_B32 and its kin: D = exec, then exec = S0 op exec; scc = exec != 0.
enum class ExecOp { kAnd, kOr, kXor, kAndNot1, kAndNot0, kOrNot1, kOrNot0, kNand, kNor, kXnor };
template <ExecOp kOp>
inline LaneMask combine_exec(LaneMask s0, LaneMask exec) {
  switch (kOp) {
    case ExecOp::kAnd:
      return s0 & exec;
    case ExecOp::kOr:
      return s0 | exec;
    case ExecOp::kXor:
      return s0 ^ exec;
    case ExecOp::kAndNot1:
      return s0 & ~exec;
    case ExecOp::kAndNot0:
      return ~s0 & exec;
    case ExecOp::kOrNot1:
      return s0 | ~exec;
    case ExecOp::kOrNot0:
      return ~s0 | exec;
    case ExecOp::kNand:
      return ~(s0 & exec);
    case ExecOp::kNor:
      return ~(s0 | exec);
    default:
      return ~(s0 ^ exec);
  }
}
template <Form F, ExecOp kOp>
inline void s_saveexec(Wave* wave, const Op* op) {
  const LaneMask source = scalar_in<LaneMask>(wave, op->r[1]), saved = wave->exec();
  wave->set_exec(combine_exec<kOp>(source, saved));
  scalar_out<LaneMask>(wave, op->r[0], saved);
  wave->scc = wave->exec() != 0;
}
// S_AND_NOT1_WREXEC_B32, S_AND_NOT0_WREXEC_B32: exec = S0 op exec, and D gets the new exec.
template <Form F, ExecOp kOp>
inline void s_wrexec(Wave* wave, const Op* op) {
  wave->set_exec(combine_exec<kOp>(scalar_in<LaneMask>(wave, op->r[1]), wave->exec()));
  scalar_out<LaneMask>(wave, op->r[0], wave->exec());
  wave->scc = wave->exec() != 0;
}

}  // namespace emu::inline EMU_WAVE::sem
