// State of one wave32 and the threaded-code instruction (Op) that handlers receive.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "machine/lanes.hpp"

namespace emu {

struct Wave;
struct Op;
using Handler = const Op* (*)(Wave*, const Op*);

// One lowered instruction. Register numbers, constant slots and offsets are data, so one handler serves every use of
// its shape.
struct Op {
  Handler handler = nullptr;
  u32 r[7] = {};    // operands in text order: VGPR number, scalar slot or unused
  s32 offset = 0;   // memory offset (offset0 and offset1 in the low and next byte for two-address DS), simm16
  u32 ordinal = 0;  // which source instruction, for counting and for fault reports
  const Op* target = nullptr;  // where a branch goes
};

// Slots of the scalar file. Numbers below 128 are the hardware's (ISA guide, "Scalar operands").
inline constexpr u32 kVcc = 106, kTtmp0 = 108, kNull = 124, kM0 = 125, kExec = 126;
inline constexpr u32 kTrash = 128;  // destination of writes to `null`
inline constexpr u32 kFirstConstant =
    144;  // constants of the kernel follow, so a scalar operand is one load whatever it is
inline constexpr u32 kScalarSlots = 4096;
inline constexpr u32 kVgprs = 256;
inline constexpr u32 kTempVgpr = kVgprs;  // holds VOPD's first result where the halves depend on each other

enum class WaveStatus : u8 { kRunning, kBarrier, kEnded, kFaulted };

struct AddressRange {
  u64 begin = 0, end = 0;  // [begin, end)
};

class MemoryMap;

// What the waves of one workgroup share.
struct Workgroup {
  u8* lds = nullptr;
  u32 lds_bytes = 0;
  u32 scratch_bytes = 0;  // per lane
  u32 live_waves = 0;
  u32 signalled = 0;  // waves that signalled the current barrier phase
  u32 phase = 0;      // completed barrier phases
  const MemoryMap* memory = nullptr;
  u64 instruction_limit = 0;
};

struct alignas(128) Wave {
  U32 v[kVgprs + 16];  // the temporary, and room behind the last register
  S32 exec_lanes;      // exec expanded; follows s[kExec]
  u32 s[kScalarSlots];
  bool scc = false;
  WaveStatus status = WaveStatus::kRunning;
  u32 barrier_phase = 0;  // phase that must have completed for this wave to pass s_barrier_wait
  u32 index = 0;          // within the workgroup
  Workgroup* group = nullptr;
  u8* scratch = nullptr;  // lane-major: lane * scratch_bytes
  u64 executed = 0;
  u32 block_start = 0;  // ordinal after the last taken branch: instructions are counted per straight run
  const Op* resume = nullptr;
  AddressRange recent[8];  // allocations found lately, indexed by the low bits of the Op's ordinal
  // Fault report, filled by the handler that stops the wave.
  const Op* fault_op = nullptr;
  std::string fault_reason;
  bool fault_is_address = false;
  int fault_lane = -1;
  u64 fault_address = 0;

  void set_exec(u32 mask) {
    s[kExec] = mask;
    exec_lanes = expand_mask(mask);
  }
  // Adds the straight run that ends with `op` to the count.
  void count_to(const Op* op) { executed += op->ordinal + 1 - block_start; }
};

// Stops the wave: handlers return its result.
const Op* stop_with_fault(Wave* wave, const Op* op, const std::string& reason);
const Op* stop_with_bad_address(Wave* wave, const Op* op, const std::string& reason, int lane, u64 address);

}  // namespace emu
