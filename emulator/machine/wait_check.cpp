// Wait counters (ISA guide, "Data dependency resolution"): which loads a wait covers, and who uses a result too early.
#include "machine/wait_check.hpp"

#include <algorithm>
#include <optional>

namespace emu {
namespace {

RegisterRange range_of(const Operand& operand) {
  if (operand.kind == Operand::Kind::kVgpr) return {operand.index, operand.width};
  if (operand.kind == Operand::Kind::kScalar && operand.index < kNull)
    return {u16(kFirstScalarRegister + operand.index), operand.width};
  return {};
}

u32 field_value(const WaitField& field, u32 immediate) {
  u32 value = 0, width = 0;
  for (const WaitField::Part& part : field.parts) {
    value |= ((immediate >> part.first) & ((1u << part.width) - 1)) << width;
    width += part.width;
  }
  return value;
}

}  // namespace

std::string register_name(u16 number) {
  if (number < kFirstScalarRegister) return "v" + std::to_string(number);
  const u32 scalar = number - kFirstScalarRegister;
  if (scalar == kVcc || scalar == kVcc + 1) return scalar == kVcc ? "vcc_lo" : "vcc_hi";
  return scalar >= kTtmp0 ? "ttmp" + std::to_string(scalar - kTtmp0) : "s" + std::to_string(scalar);
}

void add_to_step(WaitStep& step, const Instruction& instruction, const ShapeTraits& traits, const WaitModel& model) {
  for (std::size_t i = 0; i < instruction.operands.size(); ++i) {
    const RegisterRange range = range_of(instruction.operands[i]);
    if (range.count == 0) continue;
    if (i == 0 && traits.returns)
      step.destination = range;
    else
      step.touches.push_back(range);
  }
  step.counts = traits.counts;
  step.flow = traits.flow;
  for (const WaitInstruction& wait : model.instructions) {
    if (wait.mnemonic != instruction.mnemonic) continue;
    for (const WaitField& field : wait.fields)
      step.waits.emplace_back(field.counter, field_value(field, instruction.words[0] & 0xFFFF));
  }
}

std::optional<OutstandingLoads::Load> OutstandingLoads::apply(const WaitStep& step, u32 index, const WaitModel& model) {
  const auto rule = [&model](Event event) -> const EventRule& { return model.events[std::size_t(event)]; };
  for (const auto& [counter, left] : step.waits)
    std::erase_if(loads_,
                  [&](const Load& load) { return rule(load.event).counter == counter && load.age >= left; });
  std::optional<Load> early;
  const bool in_order = step.counts != Event::kNone && rule(step.counts).queue >= 0;
  for (const Load& load : loads_) {
    const bool touched = std::any_of(step.touches.begin(), step.touches.end(),
                                     [&load](const RegisterRange& range) { return range.holds(load.number); });
    // A later load into the same register is right where results come in order.
    const bool overtaken = step.destination.holds(load.number) &&
                           !(in_order && rule(load.event).queue == rule(step.counts).queue);
    if (touched || overtaken) early = load;
  }
  if (step.counts == Event::kNone) return early;
  if (in_order)
    for (Load& load : loads_)
      if (rule(load.event).queue == rule(step.counts).queue && load.age < 255) ++load.age;
  if (in_order)  // issue has waited for the oldest ones
    std::erase_if(loads_, [&](const Load& load) {
      return rule(load.event).queue == rule(step.counts).queue && load.age >= rule(step.counts).limit;
    });
  std::erase_if(loads_, [&step](const Load& load) { return step.destination.holds(load.number); });
  for (u16 i = 0; i < step.destination.count; ++i)
    loads_.push_back({u16(step.destination.first + i), 0, step.counts, index});
  return early;
}

bool OutstandingLoads::merge(const OutstandingLoads& other) {
  bool changed = false;
  for (const Load& load : other.loads_) {
    const auto known = std::find_if(loads_.begin(), loads_.end(), [&load](const Load& candidate) {
      return candidate.number == load.number && candidate.event == load.event;
    });
    if (known == loads_.end()) {
      loads_.push_back(load);
      changed = true;
    } else if (load.age < known->age) {
      *known = load;
      changed = true;
    }
  }
  return changed;
}

bool mark_early_uses(std::vector<WaitStep>& steps, u32 entry, const WaitModel& model) {
  if (std::any_of(steps.begin(), steps.end(), [](const WaitStep& step) { return step.flow == Flow::kIndirect; })) {
    for (WaitStep& step : steps) step.marked = true;  // the paths are not known
    return true;
  }
  const auto jumps = [](const WaitStep& step) { return step.flow == Flow::kBranch || step.flow == Flow::kJump; };
  // What is outstanding where blocks begin: at the entry and at the targets of branches.
  std::vector<std::optional<OutstandingLoads>> at_start(steps.size());
  for (const WaitStep& step : steps)
    if (jumps(step)) at_start[step.target].emplace();
  std::vector<u32> todo{entry};
  std::vector<bool> visited(steps.size());
  const auto flow_into = [&](u32 index, const OutstandingLoads& loads) {
    if (!at_start[index]->merge(loads) && visited[index]) return;
    visited[index] = true;
    todo.push_back(index);
  };
  at_start[entry].emplace();
  bool any = false;
  while (!todo.empty()) {
    u32 index = todo.back();
    todo.pop_back();
    OutstandingLoads loads = *at_start[index];
    for (bool first = true; index < steps.size(); ++index, first = false) {
      if (!first && at_start[index]) {
        flow_into(index, loads);
        break;
      }
      WaitStep& step = steps[index];
      if (loads.apply(step, index, model)) any = step.marked = true;
      if (jumps(step)) flow_into(step.target, loads);
      if (step.flow == Flow::kJump || step.flow == Flow::kEnd) break;
    }
  }
  return any;
}

}  // namespace emu
