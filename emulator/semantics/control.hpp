// Branches, barriers and the end of a wave (ISA guide, chapter 5, "Program flow control", and SOPP in chapter 16).
#pragma once
#include "machine/access.hpp"
#include "machine/vector_wave.hpp"

namespace emu::inline EMU_WAVE::sem {

enum class Condition { kAlways, kScc0, kScc1, kVccz, kVccnz, kExecz, kExecnz };

// S_BRANCH, S_CBRANCH_*: pc = pc + 4 + simm16 * 4 where the condition holds. Counting and the instruction limit live
// here, because a wave that never ends must branch backwards.
template <Form F, Condition kCondition>
inline const Op* s_branch(Wave* wave, const Op* op) {
  bool taken = true;
  switch (kCondition) {
    case Condition::kAlways:
      break;
    case Condition::kScc0:
      taken = !wave->scc;
      break;
    case Condition::kScc1:
      taken = wave->scc;
      break;
    case Condition::kVccz:
      taken = scalar_in<LaneMask>(wave, kVcc) == 0;
      break;
    case Condition::kVccnz:
      taken = scalar_in<LaneMask>(wave, kVcc) != 0;
      break;
    case Condition::kExecz:
      taken = wave->exec() == 0;
      break;
    case Condition::kExecnz:
      taken = wave->exec() != 0;
      break;
  }
  if (!taken) return op + 1;
  wave->count_to(op);
  wave->block_start = op->r[1];
  if (wave->executed > wave->group->instruction_limit) [[unlikely]]
    return stop_with_fault(wave, op,
                           "instruction limit of " + std::to_string(wave->group->instruction_limit) + " reached");
  if (--wave->turn == 0) [[unlikely]] {
    wave->resume = op->target;
    return nullptr;
  }
  return op->target;
}

// Whether the wave has signalled a barrier and not waited for it since.
[[gnu::always_inline]] inline bool is_between_signal_and_wait(const Wave* wave) {
  return wave->passed_phase != wave->barrier_phase;
}

// S_ENDPGM.
template <Form F>
inline const Op* s_endpgm(Wave* wave, const Op* op) {
  if (is_between_signal_and_wait(wave)) [[unlikely]]
    return stop_with_fault(wave, op, "the wave ends between its signal to the workgroup's barrier and its wait for it");
  wave->count_to(op);
  wave->status = WaveStatus::kEnded;
  return nullptr;
}

// S_BARRIER_SIGNAL -1 counts the wave in; S_BARRIER_WAIT -1 lets it pass when all of the workgroup's waves have
// signalled. Hardware only counts: a wave that signals twice stands for another one, and one that waits without a signal
// is stuck or passes by an earlier barrier. No correct kernel does either, so both are faults.
template <Form F>
inline const Op* s_barrier_signal(Wave* wave, const Op* op) {
  if (wave->s[op->r[0]] != ~u32(0)) return stop_with_fault(wave, op, "only the workgroup barrier (-1) is emulated");
  if (is_between_signal_and_wait(wave))
    return stop_with_fault(wave, op, "signals the workgroup's barrier again without having waited for it");
  Workgroup* group = wave->group;
  wave->barrier_phase = group->phase + 1;
  if (++group->signalled == group->live_waves) complete_phase(*group);
  return op + 1;
}
inline const Op* pass_barrier(Wave* wave, const Op* op) {
  if (wave->group->phase >= wave->barrier_phase) {
    wave->passed_phase = wave->barrier_phase;
    return op + 1;
  }
  wave->status = WaveStatus::kBarrier;
  wave->resume = op;
  return nullptr;
}
template <Form F>
inline const Op* s_barrier_wait(Wave* wave, const Op* op) {
  if (s16(wave->s[op->r[0]]) != -1) return stop_with_fault(wave, op, "only the workgroup barrier (-1) is emulated");
  if (!is_between_signal_and_wait(wave))
    return stop_with_fault(wave, op, "waits for the workgroup's barrier without having signalled it");
  return pass_barrier(wave, op);
}

// S_BARRIER of families without split barriers: signals and waits in one.
template <Form F>
inline const Op* s_barrier(Wave* wave, const Op* op) {
  Workgroup* group = wave->group;
  if (!is_between_signal_and_wait(wave)) {
    wave->barrier_phase = group->phase + 1;
    if (++group->signalled == group->live_waves) complete_phase(*group);
  }
  return pass_barrier(wave, op);
}

// S_GETREG_B32: bits of a hardware register: MODE as the kernel's descriptor sets it, a count of executed instructions for
// the cycles, 0 for what identifies the hardware. The operand is [5:0] register, [10:6] first bit, [15:11] width - 1.
template <Form F>
inline bool s_getreg(Wave* wave, const Op* op) {
  const u32 field = wave->s[op->r[1]], number = field & 0x3F, first = (field >> 6) & 31, width = (field >> 11) + 1;
  const u32 value = number == kModeRegister ? wave->group->mode : number == kShaderCycles ? u32(wave->executed) : 0;
  wave->s[op->r[0]] = (value >> first) & (width == 32 ? ~u32(0) : (u32(1) << width) - 1);
  return true;
}
inline bool keep_mode(Wave* wave, const Op* op, u32 first, u32 width, u32 value) {
  const u32 mask = width == 32 ? ~u32(0) : (u32(1) << width) - 1;
  if (((wave->group->mode >> first) & mask) == (value & mask)) return true;
  stop_with_fault(wave, op, "a change of the rounding, denormal or IEEE mode is not emulated");
  return false;
}
// S_SETREG_B32, S_SETREG_IMM32_B32, S_DENORM_MODE, S_ROUND_MODE: only writes to MODE that change nothing.
template <Form F>
inline bool s_setreg(Wave* wave, const Op* op) {
  const u32 field = wave->s[op->r[0]];
  if ((field & 0x3F) == kModeRegister)
    return keep_mode(wave, op, (field >> 6) & 31, (field >> 11) + 1, wave->s[op->r[1]]);
  stop_with_fault(wave, op, "of the hardware registers only MODE may be written");
  return false;
}
template <Form F, u32 kFirst>
inline bool s_mode(Wave* wave, const Op* op) {
  return keep_mode(wave, op, kFirst, 4, wave->s[op->r[0]]);
}

// Padding behind a kernel's code, and the end of its code: reaching either is a fault.
template <Form F>
inline const Op* trap(Wave* wave, const Op* op) {
  return run_past_end(wave, op);
}

}  // namespace emu::inline EMU_WAVE::sem
