// LDS instructions (ISA guide, chapter 12, "Data share operations"). An access outside the workgroup's allocation stops
// the wave; hardware would return 0 or drop it, but no correct kernel does it.
#pragma once
#include "machine/access.hpp"
#include "machine/vector_wave.hpp"
#include "semantics/memory.hpp"

namespace emu::inline EMU_WAVE::sem {

[[gnu::always_inline]] inline u8* lds_pointer(Wave* wave, const Op* op, u64 address, u32 size, int lane) {
  const Workgroup* group = wave->group;
  if (address + size <= group->lds_bytes) [[likely]]
    return group->lds + address;
  stop_with_bad_address(wave, op,
                        "LDS access of " + std::to_string(size) + " bytes outside the workgroup's " +
                            std::to_string(group->lds_bytes) + " bytes",
                        lane, address);
  return nullptr;
}

// DS_LOAD_*: vdst = LDS[vaddr + offset].
template <Form F, int Bytes, Fill kFill = Fill::kZero>
inline bool ds_load(Wave* wave, const Op* op) {
  const U32 addresses = wave->v[op->r[1]];
  for (LaneMask rest = wave->exec(); rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const u8* memory = lds_pointer(wave, op, u64(addresses[lane]) + u32(op->offset), Bytes, lane);
    if (memory == nullptr) return false;
    put_loaded<Bytes, kFill>(wave, op->r[0], lane, memory);
  }
  return true;
}
// DS_STORE_*: LDS[vaddr + offset] = vdata.
template <Form F, int Bytes, Fill kFill = Fill::kZero>
inline bool ds_store(Wave* wave, const Op* op) {
  for (LaneMask rest = wave->exec(); rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    u8* memory = lds_pointer(wave, op, u64(wave->v[op->r[0]][lane]) + u32(op->offset), Bytes, lane);
    if (memory == nullptr) return false;
    get_stored<Bytes, kFill>(wave, op->r[1], lane, memory);
  }
  return true;
}
// DS_LOAD_2ADDR_*: two elements at offset0 and offset1, counted in elements (times 64 for the STRIDE64 forms).
template <Form F, int Bytes, int Stride = 1>
inline bool ds_load_2addr(Wave* wave, const Op* op) {
  const U32 addresses = wave->v[op->r[1]];
  for (int part = 0; part < 2; ++part) {
    const u32 offset = u32(Bytes * Stride) * ((u32(op->offset) >> (8 * part)) & 0xFF);
    for (LaneMask rest = wave->exec(); rest != 0; rest &= rest - 1) {
      const int lane = std::countr_zero(rest);
      const u8* memory = lds_pointer(wave, op, u64(addresses[lane]) + offset, Bytes, lane);
      if (memory == nullptr) return false;
      put_loaded<Bytes, Fill::kZero>(wave, op->r[0] + u32(part) * (Bytes / 4), lane, memory);
    }
  }
  return true;
}
// DS_STORE_2ADDR_*: operands vaddr, vdata0, vdata1.
template <Form F, int Bytes, int Stride = 1>
inline bool ds_store_2addr(Wave* wave, const Op* op) {
  for (int part = 0; part < 2; ++part) {
    const u32 offset = u32(Bytes * Stride) * ((u32(op->offset) >> (8 * part)) & 0xFF);
    for (LaneMask rest = wave->exec(); rest != 0; rest &= rest - 1) {
      const int lane = std::countr_zero(rest);
      u8* memory = lds_pointer(wave, op, u64(wave->v[op->r[0]][lane]) + offset, Bytes, lane);
      if (memory == nullptr) return false;
      get_stored<Bytes, Fill::kZero>(wave, op->r[1 + part], lane, memory);
    }
  }
  return true;
}

}  // namespace emu::inline EMU_WAVE::sem
