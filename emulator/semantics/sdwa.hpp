// SDWA (Vega ISA guide, "Sub-dword addressing"): VOP1, VOP2 and VOPC of gfx9 take and give parts of a register.
#pragma once
#include "machine/access.hpp"
#include "machine/vector_wave.hpp"

namespace emu::inline EMU_WAVE {

enum class Part { kDword, kWord0, kWord1, kByte0, kByte1, kByte2, kByte3 };
// What becomes of the rest of a destination.
enum class Rest { kZero, kSign, kKeep };

constexpr u32 part_shift(Part part) {
  return part == Part::kWord1 ? 16 : part >= Part::kByte0 ? 8 * u32(int(part) - int(Part::kByte0)) : 0;
}
constexpr u32 part_bits(Part part) { return part >= Part::kByte0 ? 8 : part == Part::kDword ? 32 : 16; }

template <Part kPart, bool kSigned>
[[gnu::always_inline]] inline U32 sdwa_part(U32 word) {
  constexpr u32 kUnused = 32 - part_bits(kPart);
  if constexpr (kSigned)
    return bits<U32>(bits<S32>(word << U32(kUnused - part_shift(kPart))) >> S32(s32(kUnused)));
  return (word >> U32(part_shift(kPart))) & U32(~u32(0) >> kUnused);
}
template <Part kPart, Rest kRest>
[[gnu::always_inline]] inline void sdwa_out(Wave* wave, u32 vgpr, U32 value) {
  constexpr u32 kMask = ~u32(0) >> (32 - part_bits(kPart)) << part_shift(kPart);
  const U32 placed = (value << U32(part_shift(kPart))) & U32(kMask);
  if constexpr (kRest == Rest::kKeep) {
    vector_out(wave, vgpr, placed | (wave->v[vgpr] & U32(~kMask)));
  } else if constexpr (kRest == Rest::kSign) {
    constexpr u32 kAbove = 32 - part_shift(kPart) - part_bits(kPart);
    vector_out(wave, vgpr, bits<U32>(bits<S32>(placed << U32(kAbove)) >> S32(s32(kAbove))));
  } else {
    vector_out(wave, vgpr, placed);
  }
}

}  // namespace emu::inline EMU_WAVE
