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
    if (races_ != nullptr) now_ = races_->begin(*wave, *op, wave->group->phase, kAccess);
  }
  // Whether all lanes are active and nothing is to be said about any: they are inside, and no race is possible.
  template <u32 kBytes>
  [[gnu::always_inline]] bool allows_all(const U32& addresses, u32 offset) const {
    const u32 size = wave_->group->lds_bytes;
    if (offset + kBytes > size || wave_->exec() != LaneMask(~LaneMask(0))) return false;
    if (collect_mask(addresses > U32(size - offset - kBytes)) != 0) return false;
    if (races_ == nullptr) return true;
    const U32 places = addresses + U32(offset);
    return races_->note_all<kAccess, kBytes>(now_, reinterpret_cast<const u32*>(&places), kLanes);
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

// One element per active lane, at its address + offset. False: stopped.
template <Access kAccess, int Bytes, Fill kFill>
[[gnu::always_inline]] inline bool lds_access(Wave* wave, const LdsAccess<kAccess>& lds, u32 vgpr,
                                              const U32 addresses, u32 offset) {
  if (lds.template allows_all<Bytes>(addresses, offset)) [[likely]] {
    transfer_all<kAccess, Bytes, kFill>(wave, vgpr, wave->group->lds + offset, addresses);
    return true;
  }
  for (LaneMask rest = wave->exec(); rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const u64 address = u64(addresses[lane]) + offset;
    if constexpr (kAccess == Access::kLoad) {
      const u8* const memory = lds.template at<Bytes>(address, lane);
      if (memory == nullptr) return false;
      put_loaded<Bytes, kFill>(wave, vgpr, lane, memory);
    } else {
      const auto store = [&](u8* target) { get_stored<Bytes, kFill>(wave, vgpr, lane, target); };
      u8* const memory = lds.template at<Bytes>(address, lane, store);
      if (memory == nullptr) return false;
      store(memory);
    }
  }
  return true;
}
// Offset in bytes of one of the two elements of a DS_*_2ADDR_* instruction, which counts in units.
template <u32 kUnit>
[[gnu::always_inline]] inline u32 offset_of_two(const Op* op, u32 part) {
  return kUnit * ((u32(op->offset) >> (8 * part)) & 0xFF);
}

// DS_LOAD_*: vdst = LDS[vaddr + offset].
template <Form F, int Bytes, Fill kFill = Fill::kZero>
inline bool ds_load(Wave* wave, const Op* op) {
  if (turn_is_over(wave, op)) return false;
  return lds_access<Access::kLoad, Bytes, kFill>(wave, LdsAccess<Access::kLoad>(wave, op), op->r[0],
                                                 wave->v[op->r[1]], u32(op->offset));
}
// DS_STORE_*: LDS[vaddr + offset] = vdata.
template <Form F, int Bytes, Fill kFill = Fill::kZero>
inline bool ds_store(Wave* wave, const Op* op) {
  if (turn_is_over(wave, op)) return false;
  return lds_access<Access::kStore, Bytes, kFill>(wave, LdsAccess<Access::kStore>(wave, op), op->r[1],
                                                  wave->v[op->r[0]], u32(op->offset));
}
// DS_LOAD_2ADDR_*: two elements at offset0 and offset1, counted in elements (times 64 for the STRIDE64 forms).
template <Form F, int Bytes, int Stride = 1>
inline bool ds_load_2addr(Wave* wave, const Op* op) {
  if (turn_is_over(wave, op)) return false;
  const LdsAccess<Access::kLoad> lds(wave, op);
  const U32 addresses = wave->v[op->r[1]];
  for (u32 part = 0; part < 2; ++part)
    if (!lds_access<Access::kLoad, Bytes, Fill::kZero>(wave, lds, op->r[0] + part * (Bytes / 4), addresses,
                                                       offset_of_two<Bytes * Stride>(op, part)))
      return false;
  return true;
}
// DS_STORE_2ADDR_*: operands vaddr, vdata0, vdata1.
template <Form F, int Bytes, int Stride = 1>
inline bool ds_store_2addr(Wave* wave, const Op* op) {
  if (turn_is_over(wave, op)) return false;
  const LdsAccess<Access::kStore> lds(wave, op);
  for (u32 part = 0; part < 2; ++part)
    if (!lds_access<Access::kStore, Bytes, Fill::kZero>(wave, lds, op->r[1 + part], wave->v[op->r[0]],
                                                        offset_of_two<Bytes * Stride>(op, part)))
      return false;
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

// BUFFER_LOAD_DWORD and _DWORDX4 with LDS: from memory into LDS at M0 + offset + lane * bytes; what is out of range gives
// 0 (CDNA3 ISA guide 9.1.9, "Memory buffer load to LDS"). Operands: vaddr, srsrc, soffset.
template <Form F, int Bytes>
inline bool buffer_load_lds(Wave* wave, const Op* op) {
  if (turn_is_over(wave, op)) return false;
  const BufferResource resource = resource_in<BufferRules::kByIdxen, F>(wave, op->r[1]);
  if (resource.swizzled || resource.add_tid) {
    stop_with_fault(wave, op, "swizzled buffers and add_tid are not emulated");
    return false;
  }
  const LdsAccess<Access::kStore> lds(wave, op);
  const U32 first = F.idxen || F.offen ? wave->v[op->r[0]] : U32(0);
  const U32 second = F.idxen && F.offen ? wave->v[op->r[0] + 1] : first;
  const u64 scalar_offset = u64(wave->s[op->r[2]]) + u64(s64(op->offset));
  const u64 target = u64(wave->s[kM0]) + u32(op->offset);
  for (LaneMask rest = wave->exec(); rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const u64 index = F.idxen ? first[lane] : 0;
    const u64 offset = scalar_offset + (F.offen ? second[lane] : 0);
    const u64 address = resource.base + index * resource.stride + offset;
    u8 value[Bytes] = {};
    for (int part = 0; part < Bytes; part += 4) {
      if (!in_buffer(resource, index, offset + u64(part), 4)) continue;
      const u8* memory = pointer_to<Access::kLoad>(wave, op, address + u64(part), 4, lane);
      if (memory == nullptr) return false;
      std::memcpy(value + part, memory, 4);
    }
    const auto store = [&](u8* data) { std::memcpy(data, value, Bytes); };
    u8* const slot = lds.template at<Bytes>(target + u64(lane) * Bytes, lane, store);
    if (slot == nullptr) return false;
    store(slot);
  }
  return true;
}

// DS_READ_B64_TR_B16 (CDNA4 ISA guide): the 16 lanes of a row read 4 x 16 halves, four consecutive lanes a line of it;
// each lane receives a column.
template <Form F>
inline bool ds_read_b64_tr_b16(Wave* wave, const Op* op) {
  if (turn_is_over(wave, op)) return false;
  if (wave->exec() != LaneMask(~LaneMask(0))) {
    stop_with_fault(wave, op, "a transposing load with inactive lanes is not documented");
    return false;
  }
  const LdsAccess<Access::kLoad> lds(wave, op);
  const U32 addresses = wave->v[op->r[1]];
  for (int row = 0; row < kLanes; row += 16) {
    u16 lines[4][16];
    for (int i = 0; i < 16; ++i) {
      const u8* memory = lds.template at<8>(u64(addresses[row + i]) + u32(op->offset), row + i);
      if (memory == nullptr) return false;
      std::memcpy(&lines[i / 4][4 * (i % 4)], memory, 8);
    }
    for (int i = 0; i < 16; ++i) {
      wave->v[op->r[0]][row + i] = lines[0][i] | u32(lines[1][i]) << 16;
      wave->v[op->r[0] + 1][row + i] = lines[2][i] | u32(lines[3][i]) << 16;
    }
  }
  return true;
}

}  // namespace emu::inline EMU_WAVE::sem
