// Memory instructions: SMEM, VBUFFER, VGLOBAL and VSCRATCH (ISA guide, chapters 8, 9 and 11). Every access is checked
// against the memory map; a bad one stops the wave with a report.
#pragma once
#include <cstring>

#include "machine/access.hpp"
#include "machine/vector_wave.hpp"
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
// How a family checks ranges: as the descriptor's OOB_SELECT says, or by index where the instruction has one and the
// stride is not 0, else in bytes (CDNA3 ISA guide, "Buffer addressing").
enum class BufferRules { kBySelect, kByIdxen };
template <BufferRules kRules, Form F>
[[gnu::always_inline]] inline BufferResource resource_in(const Wave* wave, u32 slot) {
  const u32* w = &wave->s[slot];
  if constexpr (kRules == BufferRules::kByIdxen) {
    const u32 stride = (w[1] >> 16) & 0x3FFF;
    return {(u64(w[1] & 0xFFFF) << 32) | w[0], stride,
            w[2],                              F.idxen && stride != 0 ? 1u : 3u,
            (w[1] >> 31) != 0,                 (w[3] >> 23 & 1) != 0};
  }
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

// A lane's private memory: hardware swizzles the lanes' memory; a kernel cannot see that.
template <Access kAccess, int Bytes, Fill kFill>
[[gnu::always_inline]] inline bool scratch_lanes(Wave* wave, const Op* op, u32 vgpr, U32 offsets) {
  const u32 bytes = wave->group->scratch_bytes;
  for (LaneMask rest = wave->exec(); rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    if (u64(offsets[lane]) + Bytes > bytes) {
      stop_with_bad_address(wave, op, "scratch access outside the lane's " + std::to_string(bytes) + " bytes", lane,
                            offsets[lane]);
      return false;
    }
    u8* const memory = wave->scratch + u64(lane) * bytes + offsets[lane];
    if constexpr (kAccess == Access::kLoad)
      put_loaded<Bytes, kFill>(wave, vgpr, lane, memory);
    else
      get_stored<Bytes, kFill>(wave, vgpr, lane, memory);
  }
  return true;
}

// Scratch through the swizzled buffer descriptor that GPUs without flat scratch get in their first SGPRs (LLVM's AMDGPU
// usage document, "Private Segment Buffer"): soffset counts the bytes of all lanes, the rest those of one.
template <Access kAccess, Form F, int Bytes, Fill kFill>
inline bool private_access(Wave* wave, const Op* op) {
  const u32 scalar_offset = wave->s[op->r[3]];
  if (scalar_offset % (4 * kLanes) != 0) {
    stop_with_fault(wave, op, "scratch access with a scalar offset that is not a multiple of a dword of all lanes");
    return false;
  }
  const U32 vector_offset = F.offen ? wave->v[op->r[1]] : U32(0);
  return scratch_lanes<kAccess, Bytes, kFill>(wave, op, op->r[0],
                                              vector_offset + U32(scalar_offset / kLanes + u32(op->offset)));
}

// BUFFER_LOAD_*, BUFFER_STORE_*: base + soffset + index * stride + voffset + constant. Range checks are per dword (per
// element for narrower ones): loads out of range give 0, stores are dropped. Addresses are computed before results are
// written, because the destination may overlap them.
template <Access kAccess, Form F, int Bytes, Fill kFill, BufferRules kRules>
inline bool buffer_access(Wave* wave, const Op* op) {
  const BufferResource resource = resource_in<kRules, F>(wave, op->r[2]);
  if (resource.swizzled || resource.add_tid) {
    if (kRules == BufferRules::kByIdxen && !F.idxen && resource.base == reinterpret_cast<u64>(wave->scratch))
      return private_access<kAccess, F, Bytes, kFill>(wave, op);
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
template <Form F, int Bytes, Fill kFill = Fill::kZero, BufferRules kRules = BufferRules::kBySelect>
inline bool buffer_load(Wave* wave, const Op* op) {
  return buffer_access<Access::kLoad, F, Bytes, kFill, kRules>(wave, op);
}
template <Form F, int Bytes, Fill kFill = Fill::kZero, BufferRules kRules = BufferRules::kBySelect>
inline bool buffer_store(Wave* wave, const Op* op) {
  return buffer_access<Access::kStore, F, Bytes, kFill, kRules>(wave, op);
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

// SCRATCH_LOAD_*, SCRATCH_STORE_*: each lane's private memory at vaddr + saddr + constant (ISA guide 11.1.3).
template <Access kAccess, Form F, int Bytes, Fill kFill>
inline bool scratch_access(Wave* wave, const Op* op) {
  constexpr int kData = kAccess == Access::kLoad ? 0 : 1, kAddress = kAccess == Access::kLoad ? 1 : 0;
  const u32 scalar_offset = (F.kind[2] == 'u' ? wave->s[op->r[2]] : 0) + u32(op->offset);
  const U32 offsets = (F.kind[kAddress] == 'v' ? wave->v[op->r[kAddress]] : U32(0)) + U32(scalar_offset);
  return scratch_lanes<kAccess, Bytes, kFill>(wave, op, op->r[kData], offsets);
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
