// State of one wave, whatever its size, and the threaded-code instruction (Op) that handlers receive.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "machine/memory_map.hpp"
#include "machine/types.hpp"

namespace emu {

struct WaveState;
struct Op;
struct Program;
class LdsRaces;
class OutstandingLoads;
using Handler = const Op* (*)(WaveState*, const Op*);

// One lowered instruction. Register numbers, constant slots and offsets are data, so one handler serves every use of
// its shape.
struct Op {
  Handler handler = nullptr;
  u32 r[7] = {};    // operands in text order: VGPR number, scalar slot or unused
  s32 offset = 0;  // memory offset (offset0 and offset1 in the low and next byte for two-address DS), or DppControl
  u32 ordinal = 0;  // which source instruction, for counting and for fault reports
  const Op* target = nullptr;  // where a branch goes
};

// Slots of the scalar file. Numbers below 128 are the hardware's (ISA guide, "Scalar operands").
inline constexpr u32 kVcc = 106, kTtmp0 = 108, kNull = 124, kM0 = 125, kExec = 126;
inline constexpr u32 kTrash = 128;  // destination of writes to `null`
inline constexpr u32 kFirstConstant =
    144;  // constants of the kernel follow, so a scalar operand is one load whatever it is
inline constexpr u32 kScalarSlots = 4096;
inline constexpr u32 kAgpr0 = 256;        // the accumulation registers of families that have them follow the VGPRs
inline constexpr u32 kVgprs = 512;        // both
inline constexpr u32 kTempVgpr = kVgprs;  // holds VOPD's first result where the halves depend on each other

// Hardware registers that s_getreg and s_setreg name.
inline constexpr u32 kModeRegister = 1, kHardwareId1 = 23, kHardwareId2 = 24, kShaderCycles = 29;
constexpr bool is_emulated_register(u32 number) {
  return number == kModeRegister || number == kHardwareId1 || number == kHardwareId2 || number == kShaderCycles;
}

enum class Access : u8 { kLoad, kStore, kAtomic };

enum class WaveStatus : u8 { kRunning, kBarrier, kEnded, kFaulted };

struct AddressRange {
  u64 begin = 0, end = 0;  // [begin, end)
};

// What the waves of one workgroup share.
struct Workgroup {
  u8* lds = nullptr;
  u32 lds_bytes = 0;
  u32 scratch_bytes = 0;  // per lane
  u32 live_waves = 0;
  u32 signalled = 0;  // waves that signalled the current barrier phase
  u32 phase = 0;      // completed barrier phases
  const MemoryMap* memory = nullptr;
  const Program* program = nullptr;
  LdsRaces* races = nullptr;  // null: not checked
  s64* visits = nullptr;      // per source instruction: straight runs that begin there, less those that ended before it
  u64 instruction_limit = 0;
  u32 mode = 0;  // of the MODE register: rounding, denormals, dx10_clamp, IEEE
};

// All waves have signalled the barrier.
void complete_phase(Workgroup& group);

// All of a wave but its vector registers, which machine/vector_wave.hpp adds.
struct WaveState {
  alignas(128) u32 s[kScalarSlots];
  bool scc = false;
  WaveStatus status = WaveStatus::kRunning;
  u32 barrier_phase = 0;  // phase that must have completed for this wave to pass s_barrier_wait
  u32 passed_phase = 0;   // phase of the last wait it passed; less than barrier_phase between a signal and its wait
  u32 index = 0;          // within the workgroup
  u64 turn = 0;           // taken branches and LDS accesses until another wave's turn
  OutstandingLoads* outstanding = nullptr;
  Workgroup* group = nullptr;
  u8* scratch = nullptr;  // lane-major: lane * scratch_bytes
  u64 executed = 0;
  u32 block_start = 0;  // ordinal after the last taken branch: instructions are counted per straight run
  const Op* resume = nullptr;
  AddressRange recent[16];  // allocations found lately, indexed by the low bits of the Op's ordinal
  // Fault report, filled by the handler that stops the wave.
  const Op* fault_op = nullptr;
  std::string fault_reason;
  bool fault_is_address = false, fault_is_race = false;
  int fault_lane = -1;
  u64 fault_address = 0;

  // Adds the straight run that ends with `op` to the count.
  void count_to(const Op* op) {
    executed += op->ordinal + 1 - block_start;
    ++group->visits[block_start];
    --group->visits[op->ordinal + 1];
  }
};

// Stops the wave: handlers return its result.
const Op* stop_with_fault(WaveState* wave, const Op* op, const std::string& reason);
const Op* stop_with_bad_address(WaveState* wave, const Op* op, const std::string& reason, int lane, u64 address);
// An access to LDS is not ordered with another wave's.
void stop_with_race(WaveState* wave, const Op* op, Access access, int lane);
// Handler before instructions that load, wait or might use a register too early, in kernels where the analysis of
// wait_check.cpp found one of the last.
const Op* check_waits(WaveState* wave, const Op* op);
// Handler of what lies behind a kernel's code: reaching it is a fault.
const Op* run_past_end(WaveState* wave, const Op* op);

// Loads remember their ranges apart from the others, because only loads may use read-only ones.
[[gnu::always_inline]] inline u32 recent_slot(const Op* op, Access access) {
  return (op->ordinal & 7) + (access == Access::kLoad ? 0 : 8);
}

// Host pointer of a device address (they are the same memory), or null; remembers the range where there is one.
u8* find_range(WaveState* wave, const Op* op, u64 address, u64 size, Access access);
// The same, or null after recording the fault.
u8* find_slowly(WaveState* wave, const Op* op, u64 address, u32 size, Access access, int lane);

// As find_range, where the range found lately serves.
template <Access kAccess>
[[gnu::always_inline]] inline u8* recent_pointer(const WaveState* wave, const Op* op, u64 address, u64 size) {
  const AddressRange& recent = wave->recent[recent_slot(op, kAccess)];
  const bool inside = address >= recent.begin && address + size <= recent.end && address + size > address;
  return inside ? reinterpret_cast<u8*>(address) : nullptr;
}

// As find_slowly.
template <Access kAccess>
[[gnu::always_inline]] inline u8* pointer_to(WaveState* wave, const Op* op, u64 address, u32 size, int lane) {
  if (u8* const memory = recent_pointer<kAccess>(wave, op, address, size)) [[likely]]
    return memory;
  return find_slowly(wave, op, address, size, kAccess, lane);
}

}  // namespace emu
