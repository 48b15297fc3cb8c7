// A kernel lowered to threaded code: Ops, their constants, and what reports need.
#pragma once
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "decode/instruction.hpp"
#include "machine/code_object.hpp"
#include "machine/family.hpp"
#include "machine/wait_check.hpp"
#include "machine/wave.hpp"

namespace emu {

// An instruction that cannot be lowered; what() has kernel, pc and text.
class LoweringError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Program {
  std::string kernel;
  std::vector<Op> ops;         // the last one traps
  std::vector<u32> constants;  // for the scalar slots from kFirstConstant on
  std::size_t entry = 0;       // index into ops
  // Per source instruction:
  std::vector<u64> pcs;
  std::vector<std::string> texts;
  std::vector<InstructionClass> classes;
  std::vector<WaitStep> wait_steps;  // empty where the wait check is off, or finds at load time that all is well
  const WaitModel* waits = nullptr;  // of wait_steps
};

// Lowers one kernel, with the wait check where it is asked for. Throws LoweringError for an instruction without a
// handler, or where the listing's words differ from the code object's.
std::shared_ptr<const Program> lower_kernel(const CodeObject& object, const KernelDescriptor& kernel,
                                            const CodeSymbol& symbol, const Family& family, bool check_waits);

}  // namespace emu
