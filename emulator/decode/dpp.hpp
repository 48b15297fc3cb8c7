// Data-parallel primitives (DPP): modifiers by which the first source of an instruction comes from other lanes. They are
// data of an instruction, not part of its shape, packed into 32 bits.
#pragma once
#include <cstdint>
#include <string_view>

#include "decode/instruction.hpp"

namespace emu {

// Layout of the packed control. Bits 0-8 are the encoding's dpp_ctrl (RDNA3 ISA guide 7.7.1), or bits 0-23 the eight
// selectors of DPP8.
struct DppControl {
  static constexpr std::uint32_t kRowMask = 9, kBankMask = 13;  // first bits of 4
  static constexpr std::uint32_t kBoundZero = 1u << 17;         // a source that does not exist is 0; else no result
  static constexpr std::uint32_t kFetchInactive = 1u << 24;     // lanes that exec leaves out are sources too
  static constexpr std::uint32_t kDpp8 = 1u << 25;
};

// Whether a modifier belongs to DPP; the shape then says only "dpp".
bool is_dpp_modifier(std::string_view name);
bool has_dpp(const Instruction& instruction);
// Throws where a modifier has a value that is not known.
std::uint32_t dpp_control(const Instruction& instruction);

}  // namespace emu
