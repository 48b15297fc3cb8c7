// Memory instructions: SMEM, VBUFFER, VGLOBAL and VSCRATCH (ISA guide, chapters 8, 9 and 11). Every access is checked
// against the memory map; a bad one stops the wave with a report.
#pragma once
#include <atomic>
#include <cstring>

#include "machine/access.hpp"
#include "machine/vector_wave.hpp"
#include "semantics/atomic.hpp"
#include "semantics/transfer.hpp"

namespace emu::inline EMU_WAVE::sem {

// S_LOAD_B32...B512: sbase (8-byte pair) + scalar offset + constant; the low two address bits are ignored (ISA
// guide 8.1).
template <Form F, int Dwords>
inline bool s_load(Wave* wave, const Op* op) {
  const u64 address = (scalar_in<u64>(wave, op->r[1]) + wave->s[op->r[2]] + s64(op->offset)) & ~u64(3);
  const u8* source = pointer_to<Access::kLoad>(wave, op, address, 4 * Dwords, -1);
  if (source == nullptr) return false;
  std::memcpy(&wave->s[op->r[0]], source, 4 * Dwords);
  return true;
}

// S_LOAD_U8, I8, U16, I16: one element, zero or sign extended; a 16-bit address has its low bit ignored.
template <Form F, class T>
inline bool s_load_narrow(Wave* wave, const Op* op) {
  const u64 offset = wave->s[op->r[2]] + u64(s64(op->offset));
  const u64 address = (scalar_in<u64>(wave, op->r[1]) + offset) & ~u64(sizeof(T) - 1);
  const u8* source = pointer_to<Access::kLoad>(wave, op, address, sizeof(T), -1);
  if (source == nullptr) return false;
  T value;
  std::memcpy(&value, source, sizeof value);
  wave->s[op->r[0]] = u32(s32(value));
  return true;
}

// Buffer resource descriptor (ISA guide 9.1.5).
struct BufferResource {
  u64 base;
  u32 stride, records, oob_select;
  bool swizzled, add_tid;
};
[[gnu::always_inline]] inline BufferResource resource_in(const Wave* wave, u32 slot) {
  const u32* w = &wave->s[slot];
  return {(u64(w[1] & 0xFFFF) << 32) | w[0],
          (w[1] >> 16) & 0x3FFF,
          w[2],
          (w[3] >> 28) & 3,
          (w[1] >> 30) != 0,
          (w[3] >> 23 & 1) != 0};
}
// Whether `size` bytes are in range (ISA guide 9.1.5.1, "range checking"): 0 structured, 1 index only, 2 none but for
// an empty buffer, 3 raw.
[[gnu::always_inline]] inline bool in_buffer(const BufferResource& resource, u64 index, u64 offset, u32 size) {
  switch (resource.oob_select) {
    case 0:
      return index < resource.records && (resource.stride == 0 || offset + size <= resource.stride);
    case 1:
      return index < resource.records;
    case 2:
      return resource.records != 0;
    default:
      return offset + size <= resource.records;
  }
}

// BUFFER_LOAD_*, BUFFER_STORE_*: base + soffset + index * stride + voffset + constant. Range checks are per dword (per
// element for narrower ones): loads out of range give 0, stores are dropped. Addresses are computed before results are
// written, because the destination may overlap them.
template <Access kAccess, Form F, int Bytes, Fill kFill>
inline bool buffer_access(Wave* wave, const Op* op) {
  const BufferResource resource = resource_in(wave, op->r[2]);
  if (resource.swizzled || resource.add_tid) {
    stop_with_fault(wave, op, "swizzled buffers and add_tid are not emulated");
    return false;
  }
  constexpr int kUnit = Bytes < 4 ? Bytes : 4;
  const u32 vaddr = op->r[1];
  const U32 first = wave->v[vaddr];
  const U32 second = wave->v[vaddr + (F.idxen && F.offen ? 1 : 0)];
  const u64 scalar_offset = u64(wave->s[op->r[3]]) + u64(s64(op->offset));
  if constexpr (F.offen && !F.idxen) {
    AllLanes all;
    if (all.find<kAccess>(wave, op, resource.base + scalar_offset, first, Bytes) &&
        in_buffer(resource, 0, scalar_offset + all.last(), Bytes)) [[likely]] {
      transfer_all<kAccess, Bytes, kFill>(wave, op->r[0], all.memory(), all.offsets());
      return true;
    }
  }
  for (LaneMask rest = wave->exec(); rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const u64 index = F.idxen ? first[lane] : 0;
    const u64 offset = scalar_offset + (F.offen ? (F.idxen ? second[lane] : first[lane]) : 0);
    const u64 address = resource.base + index * resource.stride + offset;
    if (in_buffer(resource, index, offset, Bytes)) [[likely]] {
      u8* const memory = pointer_to<kAccess>(wave, op, address, Bytes, lane);
      if (memory == nullptr) return false;
      if constexpr (kAccess == Access::kLoad)
        put_loaded<Bytes, kFill>(wave, op->r[0], lane, memory);
      else
        get_stored<Bytes, kFill>(wave, op->r[0], lane, memory);
      continue;
    }
    alignas(16) u8 parts[Bytes] = {};
    if constexpr (kAccess == Access::kStore) get_stored<Bytes, kFill>(wave, op->r[0], lane, parts);
    for (int part = 0; part < Bytes; part += kUnit) {
      if (!in_buffer(resource, index, offset + part, kUnit)) continue;
      u8* const memory = pointer_to<kAccess>(wave, op, address + part, kUnit, lane);
      if (memory == nullptr) return false;
      if constexpr (kAccess == Access::kLoad)
        std::memcpy(parts + part, memory, kUnit);
      else
        std::memcpy(memory, parts + part, kUnit);
    }
    if constexpr (kAccess == Access::kLoad) put_loaded<Bytes, kFill>(wave, op->r[0], lane, parts);
  }
  return true;
}
template <Form F, int Bytes, Fill kFill = Fill::kZero>
inline bool buffer_load(Wave* wave, const Op* op) {
  return buffer_access<Access::kLoad, F, Bytes, kFill>(wave, op);
}
template <Form F, int Bytes, Fill kFill = Fill::kZero>
inline bool buffer_store(Wave* wave, const Op* op) {
  return buffer_access<Access::kStore, F, Bytes, kFill>(wave, op);
}

// BUFFER_ATOMIC_* without a result: as a store (ISA guide 9.1 and 11.7), each lane's change in turn. Workgroups run on
// several threads, so the change is an atomic exchange here too.
template <Form F, AtomicOp kOp, class T>
inline bool buffer_atomic(Wave* wave, const Op* op) {
  const BufferResource resource = resource_in(wave, op->r[2]);
  if (resource.swizzled || resource.add_tid) {
    stop_with_fault(wave, op, "swizzled buffers and add_tid are not emulated");
    return false;
  }
  static_assert(sizeof(T) == sizeof(u32) && !has_two_operands(kOp));
  const u32 vaddr = op->r[1];
  const u32 voffset = vaddr + (F.idxen && F.offen ? 1 : 0);
  const u64 scalar_offset = u64(wave->s[op->r[3]]) + u64(s64(op->offset));
  for (LaneMask rest = wave->exec(); rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const u64 index = F.idxen ? wave->v[vaddr][lane] : 0;
    const u64 offset = scalar_offset + (F.offen ? wave->v[voffset][lane] : 0);
    if (!in_buffer(resource, index, offset, sizeof(T))) continue;
    u8* const memory =
        pointer_to<Access::kStore>(wave, op, resource.base + index * resource.stride + offset, sizeof(T), lane);
    if (memory == nullptr) return false;
    const T data = lane_value<T>(wave, op->r[0], lane);
    std::atomic_ref<u32> word(*reinterpret_cast<u32*>(memory));
    u32 before = word.load();
    while (!word.compare_exchange_weak(before, bits<u32>(atomic_result<kOp, T>(bits<T>(before), data, T())))) {
    }
  }
  return true;
}

// GLOBAL_LOAD_*, GLOBAL_STORE_*: vaddr pair + constant, or saddr pair + 32-bit unsigned vaddr + constant (ISA
// guide 11.1). Operands in text order: loads vdst, vaddr, saddr; stores vaddr, vdata, saddr.
template <Access kAccess, Form F, int Bytes, Fill kFill>
inline bool global_access(Wave* wave, const Op* op) {
  constexpr int kData = kAccess == Access::kLoad ? 0 : 1, kAddress = kAccess == Access::kLoad ? 1 : 0;
  constexpr bool kScalarBase = F.kind[2] == 'u';
  const u32 vaddr = op->r[kAddress];
  const U32 low = wave->v[vaddr];
  const U32 high = kScalarBase ? U32(0) : wave->v[vaddr + 1];
  const u64 base = (kScalarBase ? scalar_in<u64>(wave, op->r[2]) : 0) + u64(s64(op->offset));
  if (kScalarBase || collect_mask(high != U32(high[0])) == 0) {
    AllLanes all;
    if (all.find<kAccess>(wave, op, base + (u64(high[0]) << 32), low, Bytes)) [[likely]] {
      transfer_all<kAccess, Bytes, kFill>(wave, op->r[kData], all.memory(), all.offsets());
      return true;
    }
  }
  for (LaneMask rest = wave->exec(); rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const u64 address = base + (u64(high[lane]) << 32) + low[lane];
    u8* const memory = pointer_to<kAccess>(wave, op, address, Bytes, lane);
    if (memory == nullptr) return false;
    if constexpr (kAccess == Access::kLoad)
      put_loaded<Bytes, kFill>(wave, op->r[kData], lane, memory);
    else
      get_stored<Bytes, kFill>(wave, op->r[kData], lane, memory);
  }
  return true;
}
template <Form F, int Bytes, Fill kFill = Fill::kZero>
inline bool global_load(Wave* wave, const Op* op) {
  return global_access<Access::kLoad, F, Bytes, kFill>(wave, op);
}
template <Form F, int Bytes, Fill kFill = Fill::kZero>
inline bool global_store(Wave* wave, const Op* op) {
  return global_access<Access::kStore, F, Bytes, kFill>(wave, op);
}

// FLAT_LOAD_*, FLAT_STORE_*: vaddr pair + constant (ISA guide 11.1). LDS and scratch have apertures in this address
// space, but a kernel learns them only from src_shared_base and src_private_base, which have no handlers; so every
// address is global.
template <Form F, int Bytes, Fill kFill = Fill::kZero>
inline bool flat_load(Wave* wave, const Op* op) {
  return global_access<Access::kLoad, F, Bytes, kFill>(wave, op);
}
template <Form F, int Bytes, Fill kFill = Fill::kZero>
inline bool flat_store(Wave* wave, const Op* op) {
  return global_access<Access::kStore, F, Bytes, kFill>(wave, op);
}

// SCRATCH_LOAD_*, SCRATCH_STORE_*: each lane's private memory at vaddr + saddr + constant (ISA guide 11.1.3). Hardware
// swizzles the lanes' memory; a kernel cannot see that.
template <Access kAccess, Form F, int Bytes, Fill kFill>
inline bool scratch_access(Wave* wave, const Op* op) {
  constexpr int kData = kAccess == Access::kLoad ? 0 : 1, kAddress = kAccess == Access::kLoad ? 1 : 0;
  const u32 bytes = wave->group->scratch_bytes;
  const u32 scalar_offset = (F.kind[2] == 'u' ? wave->s[op->r[2]] : 0) + u32(op->offset);
  const U32 offsets = (F.kind[kAddress] == 'v' ? wave->v[op->r[kAddress]] : U32(0)) + U32(scalar_offset);
  for (LaneMask rest = wave->exec(); rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    if (u64(offsets[lane]) + Bytes > bytes) {
      stop_with_bad_address(wave, op, "scratch access outside the lane's " + std::to_string(bytes) + " bytes", lane,
                            offsets[lane]);
      return false;
    }
    u8* const memory = wave->scratch + u64(lane) * bytes + offsets[lane];
    if constexpr (kAccess == Access::kLoad)
      put_loaded<Bytes, kFill>(wave, op->r[kData], lane, memory);
    else
      get_stored<Bytes, kFill>(wave, op->r[kData], lane, memory);
  }
  return true;
}
template <Form F, int Bytes, Fill kFill = Fill::kZero>
inline bool scratch_load(Wave* wave, const Op* op) {
  return scratch_access<Access::kLoad, F, Bytes, kFill>(wave, op);
}
template <Form F, int Bytes, Fill kFill = Fill::kZero>
inline bool scratch_store(Wave* wave, const Op* op) {
  return scratch_access<Access::kStore, F, Bytes, kFill>(wave, op);
}

}  // namespace emu::inline EMU_WAVE::sem
