// Finds uses of registers whose load is outstanding. A data-flow analysis at load time marks the instructions that
// could do it on some path; only kernels that have such instructions are followed at run time, which decides.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "decode/instruction.hpp"
#include "machine/instruction_traits.hpp"
#include "machine/wave.hpp"

namespace emu {

// Registers of both files in one numbering: VGPRs, then scalars from kFirstScalarRegister.
struct RegisterRange {
  u16 first = 0, count = 0;
  bool holds(u16 number) const { return number >= first && number < first + count; }
};
inline constexpr u16 kFirstScalarRegister = 1024;
std::string register_name(u16 number);

// One source instruction as this check sees it.
struct WaitStep {
  std::vector<RegisterRange> touches;  // operands, but for the destination of a load
  RegisterRange destination;           // of a load
  Event counts = Event::kNone;
  std::vector<std::pair<u8, u32>> waits;  // counter, and how many accesses it may leave
  Flow flow = Flow::kNext;
  u32 target = 0;       // step where a branch goes
  bool marked = false;  // the analysis cannot exclude a violation

  bool changes_state() const { return counts != Event::kNone || !waits.empty(); }
};

// Adds what an instruction (or one half of a VOPD pair) does to the step.
void add_to_step(WaitStep& step, const Instruction& instruction, const ShapeTraits& traits, const WaitModel& model);

// The loads whose results are not yet there, on one path or, for the analysis, on any path.
class OutstandingLoads {
 public:
  struct Load {
    u16 number;   // register
    u8 age;       // accesses issued since in the same queue, at least; a wait for no more than these covers it
    Event event;  // what it is
    u32 step;     // who issued it
  };
  // Applies one step. Returns the load that it should have waited for, if any.
  std::optional<Load> apply(const WaitStep& step, u32 index, const WaitModel& model);
  // Adds the loads of another path; whether anything changed.
  bool merge(const OutstandingLoads& other);
  void clear() { loads_.clear(); }

 private:
  std::vector<Load> loads_;
};

// Marks the steps that could use a register too early. Returns whether there are any.
bool mark_early_uses(std::vector<WaitStep>& steps, u32 entry, const WaitModel& model);

}  // namespace emu
