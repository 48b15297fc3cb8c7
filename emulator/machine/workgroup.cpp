// What the runners of all wave sizes share: choosing one, stopping waves, and finding memory.
#include "machine/workgroup.hpp"

#include <cstdio>

#include "machine/family.hpp"
#include "machine/lds_races.hpp"
#include "machine/program.hpp"
#include "machine/wait_check.hpp"

namespace emu {
namespace {

std::string describe_instruction(const WaveState* wave, u32 ordinal) {
  const Program& program = *wave->group->program;
  char pc[32];
  std::snprintf(pc, sizeof pc, "pc 0x%llx, ", static_cast<unsigned long long>(program.pcs[ordinal]));
  return pc + ('"' + program.texts[ordinal] + '"');
}

}  // namespace

std::unique_ptr<WorkgroupRunner> make_runner(const LaunchRequest& request, const LaunchAddresses& addresses,
                                             const MemoryMap& memory) {
  return request.family->wave_size == 64 ? make_runner_wave64(request, addresses, memory)
                                         : make_runner_wave32(request, addresses, memory);
}

void complete_phase(Workgroup& group) {
  group.signalled = 0;
  ++group.phase;
  if (group.races != nullptr) group.races->complete_phase();
}

const Op* stop_with_fault(WaveState* wave, const Op* op, const std::string& reason) {
  wave->status = WaveStatus::kFaulted;
  wave->fault_op = op;
  wave->fault_reason = reason;
  wave->fault_is_address = wave->fault_is_race = false;
  wave->fault_lane = -1;
  return nullptr;
}

const Op* stop_with_bad_address(WaveState* wave, const Op* op, const std::string& reason, int lane, u64 address) {
  stop_with_fault(wave, op, reason);
  wave->fault_is_address = true;
  wave->fault_lane = lane;
  wave->fault_address = address;
  return nullptr;
}

void stop_with_race(WaveState* wave, const Op* op, Access access, int lane) {
  const LdsRaces& races = *wave->group->races;
  const LdsRaces::Noted& other = races.conflict();
  constexpr const char* kNames[] = {"read", "write", "atomic access"};
  stop_with_bad_address(wave, op,
                        std::string("LDS race: this ") + kNames[int(access)] + " and the " +
                            kNames[int(other.access)] + " of wave " + std::to_string(other.wave) + " at " +
                            describe_instruction(wave, other.ordinal) + " have no barrier between them",
                        lane, races.conflict_address());
  wave->fault_is_race = true;
}

const Op* check_waits(WaveState* wave, const Op* op) {
  const Program& program = *wave->group->program;
  const auto early = wave->outstanding->apply(program.wait_steps[op->ordinal], op->ordinal, *program.waits);
  if (early)
    return stop_with_fault(wave, op,
                           "uses " + register_name(early->number) + ", which " +
                               describe_instruction(wave, early->step) +
                               " is still loading: no wait between them covers it");
  ++op;
  [[clang::musttail]] return op->handler(wave, op);
}

const Op* run_past_end(WaveState* wave, const Op* op) {
  return stop_with_fault(wave, op, "execution ran past the end of the kernel");
}

u8* find_range(WaveState* wave, const Op* op, u64 address, u64 size, Access access) {
  const MemoryRange* range = wave->group->memory->find(address, size);
  if (range == nullptr || (access != Access::kLoad && !range->writable)) return nullptr;
  wave->recent[recent_slot(op, access)] = {range->begin, range->end};
  return reinterpret_cast<u8*>(address);
}

u8* find_slowly(WaveState* wave, const Op* op, u64 address, u32 size, Access access, int lane) {
  if (u8* const memory = find_range(wave, op, address, size, access)) return memory;
  const bool anywhere = wave->group->memory->find(address, size) != nullptr;
  constexpr const char* kNames[] = {"load of ", "store of ", "atomic of "};
  const std::string what = kNames[int(access)] + std::to_string(size) + " bytes ";
  stop_with_bad_address(wave, op, what + (anywhere ? "to read-only memory" : "outside every allocation"), lane,
                        address);
  return nullptr;
}

}  // namespace emu
