// Lowers decoded instructions to Ops: finds the handler of each shape, gives constants slots, resolves branches, splits
// VOPD pairs, and adds the run-time half of the wait check to kernels that need it.
#include "machine/program.hpp"

#include <immintrin.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "decode/dpp.hpp"

namespace emu {
namespace {

std::string hex(u64 value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

class Lowering {
 public:
  Lowering(const CodeObject& object, const KernelDescriptor& kernel, const Family& family, bool check_waits)
      : object_(object),
        kernel_(kernel),
        shapes_(shapes_of(family)),
        vgprs_(kernel.vgpr_counts(family)),
        program_(std::make_shared<Program>()) {
    program_->kernel = kernel.name;
    if (check_waits) program_->waits = &waits_of(family);
  }

  std::shared_ptr<const Program> run(const CodeSymbol& symbol) {
    if (kernel_.preloaded_arguments != 0)
      throw LoweringError("kernel " + kernel_.name + " wants " + std::to_string(kernel_.preloaded_arguments) +
                          " dwords of its arguments preloaded in SGPRs, which is not emulated: compile it without "
                          "-amdgpu-kernarg-preload-count");
    for (const CodeLine& line : symbol.lines) {
      line_ = &line;
      check_words(line);
      program_->pcs.push_back(line.pc);
      program_->texts.push_back(line.text);
      try {
        parsed_.push_back(parse_instruction(line));
      } catch (const std::exception& error) {
        fail(error.what());
      }
    }
    find_early_uses();
    for (ordinal_ = 0; const CodeLine& line : symbol.lines) {
      line_ = &line;
      first_op_[line.pc] = program_->ops.size();
      try {
        lower_parts(parsed_[ordinal_]);
        ++ordinal_;
      } catch (const LoweringError&) {
        throw;
      } catch (const std::exception& error) {
        fail(error.what());
      }
    }
    ordinal_ = u32(program_->pcs.size());
    program_->pcs.push_back(symbol.lines.empty() ? symbol.begin
                                                 : symbol.lines.back().pc + 4 * symbol.lines.back().words.size());
    program_->texts.push_back("(end of the kernel's code)");
    program_->classes.push_back(InstructionClass::kHint);
    Op end;
    end.handler = run_past_end;
    end.ordinal = ordinal_;
    first_op_[program_->pcs.back()] = program_->ops.size();
    program_->ops.push_back(end);
    resolve_branches();
    const auto entry = first_op_.find(kernel_.entry);
    if (entry == first_op_.end())
      throw LoweringError("kernel " + kernel_.name + ": entry " + hex(kernel_.entry) + " is not an instruction");
    program_->entry = entry->second;
    return program_;
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    throw LoweringError("kernel " + kernel_.name + ", pc " + hex(line_->pc) + ", instruction \"" + line_->text +
                        "\": " + reason);
  }

  // The words of a listing must be those of the code object, or it belongs to another or was edited.
  void check_words(const CodeLine& line) const {
    const auto bytes = object_.at(line.pc, 4 * line.words.size());
    if (std::memcmp(bytes.data(), line.words.data(), bytes.size()) != 0)
      fail("the decoded listing does not belong to this code object; remove it from the cache");
  }

  static u64 branch_target(const Instruction& instruction) {
    return instruction.pc + 4 + u64(s64(s16(instruction.words[0] & 0xFFFF)) * 4);
  }

  // Fills wait_steps where the kernel could use a register while it is being loaded.
  void find_early_uses() {
    if (program_->waits == nullptr) return;
    std::vector<WaitStep> steps(parsed_.size());
    for (std::size_t i = 0; i < parsed_.size(); ++i) {
      for (const Instruction& part : parsed_[i]) {
        const auto row = shapes_.find(shape_key(part));
        if (row == shapes_.end()) continue;  // lowering will say so
        add_to_step(steps[i], part, row->second.traits, *program_->waits);
        if (steps[i].flow != Flow::kBranch && steps[i].flow != Flow::kJump) continue;
        steps[i].target = ordinal_of(branch_target(part));
        if (steps[i].target >= steps.size()) return;  // lowering will say so
      }
    }
    const u32 entry = ordinal_of(kernel_.entry);
    if (entry < steps.size() && mark_early_uses(steps, entry, *program_->waits)) program_->wait_steps = std::move(steps);
  }

  void lower_parts(const std::vector<Instruction>& parts) {
    if (!program_->wait_steps.empty()) {
      const WaitStep& step = program_->wait_steps[ordinal_];
      if (step.marked || step.changes_state()) {
        Op check;
        check.handler = check_waits;
        check.ordinal = ordinal_;
        program_->ops.push_back(check);
      }
    }
    if (parts.size() == 1)
      lower(parts[0], false);
    else
      lower_pair(parts[0], parts[1]);
  }

  static bool reads(const Instruction& instruction, const Operand& vgpr) {
    for (std::size_t i = instruction.mnemonic.starts_with("v_fmac") ? 0 : 1; i < instruction.operands.size(); ++i)
      if (instruction.operands[i].kind == Operand::Kind::kVgpr && instruction.operands[i].index == vgpr.index)
        return true;
    return false;
  }

  // VOPD reads all sources before it writes (ISA guide 7.6). Two Ops in an order in which neither destroys the other's
  // sources; where each reads the other's destination, the first result waits in a VGPR that kernels cannot name.
  void lower_pair(const Instruction& x, const Instruction& y) {
    if (!reads(y, x.operands[0])) {
      lower(x, false);
      lower(y, false);
    } else if (!reads(x, y.operands[0])) {
      lower(y, false);
      lower(x, false);
    } else {
      Instruction move = x;
      move.mnemonic = "v_mov_b32";
      move.operands = {x.operands[0], x.operands[0]};
      move.operands[1].index = kTempVgpr;
      lower(x, true);
      lower(y, false);
      lower(move, false);
    }
  }

  void lower(const Instruction& instruction, bool to_temporary) {
    const std::string key = shape_key(instruction);
    const auto found = shapes_.find(key);
    if (found == shapes_.end())
      fail("no handler for the shape \"" + key +
           "\". Build the emulator with a directory of kernels that use it "
           "(KERNEL_DIRS of emulator/CMakeLists.txt), and add a row to emulator/isa if it has none.");
    const ShapeRow& row = found->second;
    program_->classes.resize(ordinal_ + 1, row.traits.kind);
    if (row.handler == nullptr) return;
    Op op;
    op.handler = row.handler;
    op.ordinal = ordinal_;
    op.offset = data_of_modifiers(instruction);
    for (std::size_t i = 0; i < instruction.operands.size() && i < std::strlen(row.codes); ++i)
      op.r[i] = lower_operand(instruction, i, row.codes[i], op);
    if (to_temporary) op.r[0] = kTempVgpr;
    program_->ops.push_back(op);
  }

  // The two-address DS instructions have two offsets; ds_swizzle names its pattern, which the words hold.
  static s32 data_of_modifiers(const Instruction& instruction) {
    if (has_dpp(instruction)) return s32(dpp_control(instruction));
    for (const Modifier& modifier : instruction.modifiers)
      if (modifier.name == "offset" && modifier.value.starts_with("swizzle(")) return s32(instruction.words[0] & 0xFFFF);
    return s32(modifier_number(instruction, "offset", 0) | modifier_number(instruction, "offset0", 0) |
               modifier_number(instruction, "offset1", 0) << 8);
  }

  void check_vgprs(const Operand& operand) {
    if (operand.index == kTempVgpr) return;
    const bool accumulation = operand.index >= kAgpr0;
    const u32 first = operand.index - (accumulation ? kAgpr0 : 0), last = first + operand.width - 1;
    const u32 count = accumulation ? vgprs_.accumulation : vgprs_.vector;
    if (last < count) {
      uses_accumulation_ |= accumulation;
      uses_above_offset_ |= !accumulation && last >= vgprs_.accum_offset;
      if (uses_accumulation_ && uses_above_offset_)
        fail("the kernel uses both accumulation registers and VGPRs from v" + std::to_string(vgprs_.accum_offset) +
             " on, which are the same");
      return;
    }
    fail("register " + std::string(accumulation ? "a" : "v") + std::to_string(last) + " is beyond the kernel's " +
         std::to_string(count) + (accumulation ? " AGPRs" : " VGPRs"));
  }

  u32 lower_operand(const Instruction& instruction, std::size_t i, char code, Op& op) {
    const Operand& operand = instruction.operands[i];
    switch (operand.kind) {
      case Operand::Kind::kVgpr:
        check_vgprs(operand);
        return operand.index;
      case Operand::Kind::kScalar:
        if (operand.index == kNull && code == 'D') return kTrash;
        // The shape tells handlers of exec as the first operand; none looks for it elsewhere.
        if (i != 0 && code == 'D' && operand.index + operand.width > kExec && operand.index <= kExec + 1)
          fail("exec as the second destination is not emulated");
        return operand.index;
      case Operand::Kind::kOff:
        return constant(0, 2);
      case Operand::Kind::kText:
        return 0;
      default:
        break;
    }
    if (code == 'L') {
      branches_.emplace_back(program_->ops.size(), branch_target(instruction));
      return 0;
    }
    if (code == 'o') {
      op.offset += s32(operand.integer);
      return constant(0, 1);
    }
    if (code == 'D') fail("operand " + std::to_string(i) + " is a constant where a destination is due");
    return lower_constant(operand, code);
  }

  // ISA guide 6.1, "Source operands": a constant takes the operand's type. i: 32 bits, h: 16 bits, q and Q: 64 bits
  // where a literal is sign or zero extended, d: f64 where a literal gives the high half, k: 16 bits to be sign
  // extended (SOPK), K: 16 bits to be zero extended, b: bf16, the high half of an f32, H: two 16-bit values, of which an
  // inline constant gives the low one (RDNA3 ISA guide 7.5.1), P: two f32, likewise, R: a hardware register and its bits.
  u32 lower_constant(const Operand& operand, char code) {
    const bool is_float = operand.kind == Operand::Kind::kFloat;
    const bool literal = operand.kind == Operand::Kind::kHex;
    switch (code) {
      case 'h':
        return constant(is_float ? f16_bits(operand.real) : u64(operand.integer) & 0xFFFF, 1);
      case 'd':
        if (literal && u64(operand.integer) <= 0xFFFFFFFFu) return constant(u64(operand.integer) << 32, 2);
        [[fallthrough]];
      case 'q':
      case 'Q':
        if (is_float) return constant(bits<u64>(operand.real), 2);
        if (literal && code == 'q') return constant(u64(s64(s32(operand.integer))), 2);
        return constant(u64(operand.integer), 2);
      case 'k':
        return constant(u64(s64(s16(operand.integer))), 1);
      case 'K':
        return constant(u64(operand.integer) & 0xFFFF, 1);
      case 'H':
        if (literal) return constant(u64(operand.integer), 1);
        return constant(is_float ? f16_bits(operand.real) : u64(operand.integer) & 0xFFFF, 1);
      case 'P': {
        // What the high half holds is not documented, so that using it shows; but all agree about 0.
        const u32 low = is_float ? bits<u32>(float(operand.real)) : u32(operand.integer);
        return constant(low | u64(low == 0 ? 0 : kPoison) << 32, 2);
      }
      case 'b':
        if (!is_float && operand.integer != 0) fail("an integer constant of a bf16 matrix is not emulated");
        return constant(bits<u32>(float(operand.real)) >> 16, 1);
      case 'R':
        if (!is_emulated_register(u32(operand.integer) & 0x3F))
          fail("hardware register " + std::to_string(operand.integer & 0x3F) + " is not emulated");
        [[fallthrough]];
      case '-':
        return constant(u64(operand.integer), 1);
      default:
        return constant(is_float ? bits<u32>(float(operand.real)) : u64(operand.integer), 1);
    }
  }

  static u64 f16_bits(double value) { return u64(_cvtss_sh(float(value), _MM_FROUND_TO_NEAREST_INT)) & 0xFFFF; }

  u32 constant(u64 value, u32 words) {
    const auto [found, added] =
        constant_slots_.try_emplace({value, words}, kFirstConstant + u32(program_->constants.size()));
    if (added) {
      if (kFirstConstant + program_->constants.size() + words > kScalarSlots)
        fail("the kernel has too many different constants");
      program_->constants.push_back(u32(value));
      if (words == 2) program_->constants.push_back(u32(value >> 32));
    }
    return found->second;
  }

  void resolve_branches() {
    for (const auto& [index, target] : branches_) {
      const auto found = first_op_.find(target);
      if (found == first_op_.end())
        throw LoweringError("kernel " + kernel_.name + ": a branch goes to " + hex(target) +
                            ", which is not an instruction of the kernel");
      program_->ops[index].target = &program_->ops[found->second];
      program_->ops[index].r[1] =
          ordinal_of(target);  // differs from the target Op's where the instruction there has no effect
    }
  }

  u32 ordinal_of(u64 pc) const {
    return u32(std::lower_bound(program_->pcs.begin(), program_->pcs.end(), pc) - program_->pcs.begin());
  }

  const CodeObject& object_;
  const KernelDescriptor& kernel_;
  const ShapeTable& shapes_;
  const VgprCounts vgprs_;
  std::shared_ptr<Program> program_;
  const CodeLine* line_ = nullptr;
  u32 ordinal_ = 0;
  std::vector<std::vector<Instruction>> parsed_;  // per line
  std::map<u64, std::size_t> first_op_;
  std::map<std::pair<u64, u32>, u32> constant_slots_;
  std::vector<std::pair<std::size_t, u64>> branches_;
  bool uses_accumulation_ = false, uses_above_offset_ = false;
};

}  // namespace

std::shared_ptr<const Program> lower_kernel(const CodeObject& object, const KernelDescriptor& kernel,
                                            const CodeSymbol& symbol, const Family& family, bool check_waits) {
  return Lowering(object, kernel, family, check_waits).run(symbol);
}

}  // namespace emu
