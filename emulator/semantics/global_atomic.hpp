// Atomic instructions on device memory (CDNA3 ISA guide, chapters 9 and 10). Workgroups run on several threads, so they
// are atomic on the host too.
#pragma once
#include "machine/access.hpp"
#include "machine/vector_wave.hpp"
#include "semantics/atomic.hpp"
#include "semantics/memory.hpp"

namespace emu::inline EMU_WAVE::sem {

// Changes the memory, whatever other threads do to it; returns what it held.
template <AtomicOp kOp, class T>
inline T apply_atomic_shared(u8* memory, T data, T second) {
  using Raw = std::conditional_t<sizeof(T) == 4, u32, u64>;
  Raw* const raw = reinterpret_cast<Raw*>(memory);
  Raw before = __atomic_load_n(raw, __ATOMIC_RELAXED);
  while (true) {
    Raw after = bits<Raw>(atomic_result<kOp, T>(bits<T>(before), data, second));
    if (__atomic_compare_exchange(raw, &before, &after, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return bits<T>(before);
  }
}
// Host pointer of what a lane changes, or null after recording the fault.
template <class T>
[[gnu::always_inline]] inline u8* atomic_pointer(Wave* wave, const Op* op, u64 address, int lane) {
  if (address % sizeof(T) != 0) [[unlikely]] {
    stop_with_bad_address(wave, op, "atomic access that is not aligned to its size", lane, address);
    return nullptr;
  }
  return pointer_to<Access::kAtomic>(wave, op, address, sizeof(T), lane);
}

// BUFFER_ATOMIC_*: vdata, vaddr, srsrc, soffset; with glc or sc0 vdata receives the old value, 0 out of range.
template <Form F, bool kReturns, AtomicOp kOp, class T, BufferRules kRules>
inline bool change_buffer(Wave* wave, const Op* op) {
  const BufferResource resource = resource_in<kRules, F>(wave, op->r[2]);
  if (resource.swizzled || resource.add_tid) {
    stop_with_fault(wave, op, "swizzled buffers and add_tid are not emulated");
    return false;
  }
  const U32 first = F.idxen || F.offen ? wave->v[op->r[1]] : U32(0);
  const U32 second = F.idxen && F.offen ? wave->v[op->r[1] + 1] : first;
  const u64 scalar_offset = u64(wave->s[op->r[3]]) + u64(s64(op->offset));
  constexpr u32 kWords = sizeof(T) / 4;
  for (LaneMask rest = wave->exec(); rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const u64 index = F.idxen ? first[lane] : 0;
    const u64 offset = scalar_offset + (F.offen ? second[lane] : 0);
    T before{};
    if (in_buffer(resource, index, offset, sizeof(T))) {
      u8* const memory = atomic_pointer<T>(wave, op, resource.base + index * resource.stride + offset, lane);
      if (memory == nullptr) return false;
      const T data = lane_value<T>(wave, op->r[0], lane);
      const T other = has_two_operands(kOp) ? lane_value<T>(wave, op->r[0] + kWords, lane) : T{};
      before = apply_atomic_shared<kOp, T>(memory, data, other);
    }
    if (kReturns) set_lane_value<T>(wave, op->r[0], lane, before);
  }
  return true;
}
template <Form F, AtomicOp kOp, class T, BufferRules kRules = BufferRules::kBySelect>
inline bool buffer_atomic(Wave* wave, const Op* op) {
  return change_buffer<F, false, kOp, T, kRules>(wave, op);
}
template <Form F, AtomicOp kOp, class T, BufferRules kRules = BufferRules::kBySelect>
inline bool buffer_atomic_rtn(Wave* wave, const Op* op) {
  return change_buffer<F, true, kOp, T, kRules>(wave, op);
}

// GLOBAL_ATOMIC_*: vaddr, vdata, saddr; behind vdst where the old value is returned.
template <Form F, bool kReturns, AtomicOp kOp, class T>
inline bool change_global(Wave* wave, const Op* op) {
  constexpr int kAddress = kReturns ? 1 : 0, kData = kAddress + 1, kBase = kAddress + 2;
  constexpr bool kScalarBase = F.kind[kBase] == 'u';
  const U32 low = wave->v[op->r[kAddress]];
  const U32 high = kScalarBase ? U32(0) : wave->v[op->r[kAddress] + 1];
  const u64 base = (kScalarBase ? scalar_in<u64>(wave, op->r[kBase]) : 0) + u64(s64(op->offset));
  constexpr u32 kWords = sizeof(T) / 4;
  for (LaneMask rest = wave->exec(); rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    u8* const memory = atomic_pointer<T>(wave, op, base + (u64(high[lane]) << 32) + low[lane], lane);
    if (memory == nullptr) return false;
    const T data = lane_value<T>(wave, op->r[kData], lane);
    const T other = has_two_operands(kOp) ? lane_value<T>(wave, op->r[kData] + kWords, lane) : T{};
    const T before = apply_atomic_shared<kOp, T>(memory, data, other);
    if (kReturns) set_lane_value<T>(wave, op->r[0], lane, before);
  }
  return true;
}
template <Form F, AtomicOp kOp, class T>
inline bool global_atomic(Wave* wave, const Op* op) {
  return change_global<F, false, kOp, T>(wave, op);
}
template <Form F, AtomicOp kOp, class T>
inline bool global_atomic_rtn(Wave* wave, const Op* op) {
  return change_global<F, true, kOp, T>(wave, op);
}

}  // namespace emu::inline EMU_WAVE::sem
