// What the checks and the profile know about an instruction shape.
#pragma once
#include <iterator>
#include <string_view>

#include "machine/wait_model.hpp"

namespace emu {

// How the profile counts an instruction.
enum class InstructionClass : u8 { kMatrix, kValu, kLds, kGlobal, kScratch, kScalar, kBranch, kWait, kHint };
inline constexpr std::string_view kClassNames[] = {"matrix", "valu",   "lds",  "global", "scratch",
                                                   "scalar", "branch", "wait", "hint"};
inline constexpr std::size_t kClasses = std::size(kClassNames);

// Where execution goes on: kBranch may go to the label, kJump does, kIndirect goes to an address in a register.
enum class Flow : u8 { kNext, kBranch, kJump, kEnd, kIndirect };

struct ShapeTraits {
  InstructionClass kind;
  Event counts = Event::kNone;  // what is outstanding after it
  bool returns = false;         // into operand 0
  Flow flow = Flow::kNext;
};

}  // namespace emu
