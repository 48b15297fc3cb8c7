// LDS instructions (ISA guide, chapter 12, "Data share operations"). An access outside the workgroup's allocation stops
// the wave; hardware would return 0 or drop it, but no correct kernel does it.
#pragma once
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "machine/access.hpp"
#include "machine/lds_races.hpp"
#include "machine/vector_wave.hpp"
#include "semantics/atomic.hpp"
#include "semantics/memory.hpp"

namespace emu::inline EMU_WAVE::sem {

// The LDS accesses of one instruction.
template <Access kAccess>
class LdsAccess {
 public:
  [[gnu::always_inline]] LdsAccess(Wave* wave, const Op* op) : wave_(wave), op_(op), races_(wave->group->races) {
    if (races_ != nullptr) now_ = races_->begin(*wave, *op, wave->group->phase);
  }
  // Whether nothing is to be said about any lane: all are active and inside, and races are not looked for.
  [[gnu::always_inline]] bool all_inside(U32 addresses, u32 offset, u32 bytes) const {
    const u32 size = wave_->group->lds_bytes;
    if (races_ != nullptr || offset + bytes > size || wave_->exec() != LaneMask(~LaneMask(0))) return false;
    return collect_mask(addresses > U32(size - offset - bytes)) == 0;
  }
  // Host pointer of an address, or null after recording the fault. `data`: the registers and their fill, for a store:
  // waves may write the same value to one place in any order.
  template <u32 kBytes, class Data = std::nullptr_t>
  [[gnu::always_inline]] u8* at(u64 address, int lane, Data data = nullptr) const {
    const Workgroup* group = wave_->group;
    if (address + kBytes > group->lds_bytes) [[unlikely]] {
      stop_with_bad_address(wave_, op_,
                            "LDS access of " + std::to_string(kBytes) + " bytes outside the workgroup's " +
                                std::to_string(group->lds_bytes) + " bytes",
                            lane, address);
      return nullptr;
    }
    if (races_ != nullptr && !races_->note<kAccess, kBytes>(now_, address)) [[unlikely]] {
      if constexpr (!std::is_same_v<Data, std::nullptr_t>) {
        u8 value[kBytes];
        data(value);
        const bool same = std::memcmp(group->lds + address, value, kBytes) == 0;
        if (same && races_->note_rewrite<kBytes>(now_, address)) return group->lds + address;
      }
      stop_with_race(wave_, op_, kAccess, lane);
      return nullptr;
    }
    return group->lds + address;
  }

 private:
  Wave* wave_;
  const Op* op_;
  LdsRaces* races_;
  LdsRaces::Instruction now_{};
};

// Whether another wave's turn has come: order matters where waves meet, so they change before LDS accesses. The
// instruction then runs when this wave goes on.
[[gnu::always_inline]] inline bool turn_is_over(Wave* wave, const Op* op) {
  if (--wave->turn != 0) [[likely]]
    return false;
  wave->resume = op;
  return true;
}

// DS_LOAD_*: vdst = LDS[vaddr + offset].
template <Form F, int Bytes, Fill kFill = Fill::kZero>
inline bool ds_load(Wave* wave, const Op* op) {
  if (turn_is_over(wave, op)) return false;
  const LdsAccess<Access::kLoad> lds(wave, op);
  u8* memory[kLanes];
  const U32 addresses = wave->v[op->r[1]];
  if (Bytes == 16 && lds.all_inside(addresses, u32(op->offset), Bytes)) {
    load_quads(wave, op->r[0], wave->group->lds + u32(op->offset), addresses);
    return true;
  }
  for (LaneMask rest = wave->exec(); rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    memory[lane] = lds.template at<Bytes>(u64(addresses[lane]) + u32(op->offset), lane);
    if (memory[lane] == nullptr) return false;
  }
  load_lanes<Bytes, kFill>(wave, op->r[0], memory);
  return true;
}
// DS_STORE_*: LDS[vaddr + offset] = vdata.
template <Form F, int Bytes, Fill kFill = Fill::kZero>
inline bool ds_store(Wave* wave, const Op* op) {
  if (turn_is_over(wave, op)) return false;
  const LdsAccess<Access::kStore> lds(wave, op);
  u8* memory[kLanes];
  for (LaneMask rest = wave->exec(); rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    memory[lane] = lds.template at<Bytes>(u64(wave->v[op->r[0]][lane]) + u32(op->offset), lane,
                                          [&](u8* data) { get_stored<Bytes, kFill>(wave, op->r[1], lane, data); });
    if (memory[lane] == nullptr) return false;
  }
  store_lanes<Bytes, kFill>(wave, op->r[1], memory);
  return true;
}
// DS_LOAD_2ADDR_*: two elements at offset0 and offset1, counted in elements (times 64 for the STRIDE64 forms).
template <Form F, int Bytes, int Stride = 1>
inline bool ds_load_2addr(Wave* wave, const Op* op) {
  if (turn_is_over(wave, op)) return false;
  const LdsAccess<Access::kLoad> lds(wave, op);
  const U32 addresses = wave->v[op->r[1]];
  for (int part = 0; part < 2; ++part) {
    const u32 offset = u32(Bytes * Stride) * ((u32(op->offset) >> (8 * part)) & 0xFF);
    for (LaneMask rest = wave->exec(); rest != 0; rest &= rest - 1) {
      const int lane = std::countr_zero(rest);
      const u8* memory = lds.template at<Bytes>(u64(addresses[lane]) + offset, lane);
      if (memory == nullptr) return false;
      put_loaded<Bytes, Fill::kZero>(wave, op->r[0] + u32(part) * (Bytes / 4), lane, memory);
    }
  }
  return true;
}
// DS_STORE_2ADDR_*: operands vaddr, vdata0, vdata1.
template <Form F, int Bytes, int Stride = 1>
inline bool ds_store_2addr(Wave* wave, const Op* op) {
  if (turn_is_over(wave, op)) return false;
  const LdsAccess<Access::kStore> lds(wave, op);
  for (int part = 0; part < 2; ++part) {
    const u32 offset = u32(Bytes * Stride) * ((u32(op->offset) >> (8 * part)) & 0xFF);
    for (LaneMask rest = wave->exec(); rest != 0; rest &= rest - 1) {
      const int lane = std::countr_zero(rest);
      const auto store = [&](u8* target) { get_stored<Bytes, Fill::kZero>(wave, op->r[1 + part], lane, target); };
      u8* memory = lds.template at<Bytes>(u64(wave->v[op->r[0]][lane]) + offset, lane, store);
      if (memory == nullptr) return false;
      store(memory);
    }
  }
  return true;
}

// DS_ADD_U32, DS_ADD_RTN_U32 and their kin, lowest lane first: vdst = LDS[vaddr + offset], which becomes the operation's
// result. Operands: vdst where the instruction returns, vaddr, one or two of data.
template <bool kReturns, AtomicOp kOp, class T>
inline bool lds_atomic(Wave* wave, const Op* op) {
  if (turn_is_over(wave, op)) return false;
  const LdsAccess<Access::kAtomic> lds(wave, op);
  constexpr u32 kAddress = kReturns ? 1 : 0;
  const U32 addresses = wave->v[op->r[kAddress]];
  for (LaneMask rest = wave->exec(); rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    u8* memory = lds.template at<sizeof(T)>(u64(addresses[lane]) + u32(op->offset), lane);
    if (memory == nullptr) return false;
    const T data = lane_value<T>(wave, op->r[kAddress + 1], lane);
    const T second = has_two_operands(kOp) ? lane_value<T>(wave, op->r[kAddress + 2], lane) : T{};
    const T before = apply_atomic<kOp, T>(memory, data, second);
    if (kReturns) set_lane_value<T>(wave, op->r[0], lane, before);
  }
  return true;
}
template <Form F, AtomicOp kOp, class T>
inline bool ds_atomic(Wave* wave, const Op* op) {
  return lds_atomic<false, kOp, T>(wave, op);
}
template <Form F, AtomicOp kOp, class T>
inline bool ds_atomic_rtn(Wave* wave, const Op* op) {
  return lds_atomic<true, kOp, T>(wave, op);
}

}  // namespace emu::inline EMU_WAVE::sem
