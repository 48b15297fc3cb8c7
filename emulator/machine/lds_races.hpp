// Race detector for LDS: remembers who wrote and read each byte last, and orders accesses by the barriers between.
#pragma once
#include <immintrin.h>

#include <vector>

#include "machine/wave.hpp"

namespace emu {

// An access before a wave's n-th signal comes before an access of another wave behind its n-th wait; any other two
// accesses of different waves may happen in either order, so only reads may share a byte, or only atomic accesses.
class LdsRaces {
 public:
  struct Noted {
    u32 wave, ordinal;
    u32 signals;  // barriers signalled before it
    Access access;
  };

  explicit LdsRaces(u32 lds_bytes);
  // A new workgroup.
  void start();
  // All waves have signalled: the barrier is complete.
  void complete_phase();
  // What the accesses of one LDS instruction share.
  struct Instruction {
    u32 id;       // grows with time and holds the wave in its low bits, so that most accesses are judged by it alone
    u32 ordered;  // accesses of other waves up to this id came before
    bool is_recent(u32 other) const { return other > ordered; }
    bool is_unordered(u32 other) const { return is_recent(other) && ((other ^ id) & kWaveMask) != 0; }
  };
  Instruction begin(const WaveState& wave, const Op& op, u32 current_phase);
  // One lane's access. False: another wave's access to a byte of it is not ordered; see conflict().
  template <Access kAccess, u32 kBytes>
  [[gnu::always_inline]] bool note(const Instruction& now, u64 address) {
    if (((address | kBytes) & (unit_ - 1)) != 0) [[unlikely]]
      refine(u32(address | kBytes));
    Cell* cell = &cells_[address >> unit_bits_];
    Cell* const end = cell + (kBytes >> unit_bits_);
    if constexpr (kAccess == Access::kAtomic) {
      for (; cell != end; ++cell)
        if (!note_atomic(now, cell)) [[unlikely]]
          return false;
      return true;
    } else {
      constexpr bool kWrite = kAccess == Access::kStore;
      for (; end - cell >= 2; cell += 2)
        if (!note_pair<kWrite>(now, cell)) [[unlikely]]
          return false;
      return cell == end || note_one<kWrite>(now, cell);
    }
  }
  // One lane's write of what is there already, after note() returned false: it may meet other waves' writes, but not
  // their reads and atomic accesses.
  template <u32 kBytes>
  bool note_rewrite(const Instruction& now, u64 address) {
    Cell* const cells = &cells_[address >> unit_bits_];
    for (u32 i = 0; i < kBytes >> unit_bits_; ++i) {
      Cell others = cells[i];
      others.written = 0;
      if (is_conflict(now, others, Access::kStore, u64(&cells[i] - cells_.data()))) return false;
      cells[i].written = now.id;
    }
    return true;
  }
  // The other access and its byte; valid after note() returned false.
  const Noted& conflict() const { return conflict_; }
  u64 conflict_address() const { return conflict_address_; }

 private:
  static constexpr u32 kWaveBits = 5, kWaveMask = (1 << kWaveBits) - 1;
  static constexpr u32 kWidestBits = 4;  // an access has 16 bytes at most
  // Ids of the last accesses to one unit of LDS.
  struct Cell {
    u32 written = 0, read = 0;
    u32 read_before = 0;  // the last read by another wave than `read`
    u32 changed = 0;      // the last atomic access; the one before it by another wave is in changed_before_
  };
  template <bool kWrite>
  [[gnu::always_inline]] bool note_one(const Instruction& now, Cell* cell) {
    constexpr Access kAccess = kWrite ? Access::kStore : Access::kLoad;
    const bool read_by_other = now.is_unordered(cell->read);
    bool clash = now.is_unordered(cell->written);
    if (kWrite) clash |= read_by_other | now.is_unordered(cell->read_before);
    // Even where this wave's own atomic access is the last, another wave's may be the one before.
    clash |= now.is_recent(cell->changed);
    if (clash && is_conflict(now, *cell, kAccess)) [[unlikely]]
      return false;
    if (kWrite) {
      cell->written = now.id;
    } else {
      if (read_by_other) cell->read_before = cell->read;
      cell->read = now.id;
    }
    return true;
  }
  // The same for two cells at once. Ids are below 2^31, so signed compares serve.
  template <bool kWrite>
  [[gnu::always_inline]] bool note_pair(const Instruction& now, Cell* cell) {
    const __m256i ids = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(cell));
    const __m256i id = _mm256_set1_epi32(int(now.id));
    const __m256i other_bits = _mm256_and_si256(_mm256_xor_si256(ids, id), _mm256_set1_epi32(kWaveMask));
    const __m256i recent = _mm256_cmpgt_epi32(ids, _mm256_set1_epi32(int(now.ordered)));
    const __m256i unordered =
        _mm256_andnot_si256(_mm256_cmpeq_epi32(other_bits, _mm256_setzero_si256()), recent);
    constexpr int kLooksAt = kWrite ? 0xFF : 0x99;  // the members of Cell, a bit each; of the last, as in note_one
    const __m256i clash = _mm256_blend_epi32(unordered, recent, 0x88);
    constexpr Access kAccess = kWrite ? Access::kStore : Access::kLoad;
    if ((_mm256_movemask_ps(_mm256_castsi256_ps(clash)) & kLooksAt) != 0)
      if (is_conflict(now, cell[0], kAccess) || is_conflict(now, cell[1], kAccess)) [[unlikely]]
        return false;
    __m256i noted = _mm256_blend_epi32(ids, id, kWrite ? 0x11 : 0x22);
    if (!kWrite) {  // read_before = read where that is another wave's
      const __m256i read = _mm256_shuffle_epi32(ids, 0b11'01'01'00);
      const __m256i by_other = _mm256_shuffle_epi32(unordered, 0b11'01'01'00);
      noted = _mm256_blend_epi32(noted, _mm256_blendv_epi8(ids, read, by_other), 0x44);
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(cell), noted);
    return true;
  }
  bool note_atomic(const Instruction& now, Cell* cell);
  void refine(u32 multiple_of_unit);
  bool is_conflict(const Instruction& now, const Cell& cell, Access access) {
    return is_conflict(now, cell, access, u64(&cell - cells_.data()));
  }
  bool is_conflict(const Instruction& now, const Cell& cell, Access access, u64 place);
  bool is_conflict(const Instruction& now, u32 id, Access access, u64 place);

  struct Entry {
    u32 ordinal, signals;
  };
  std::vector<Cell> cells_;
  std::vector<u32> changed_before_;  // per cell; empty before the first atomic access
  u32 unit_bits_ = kWidestBits, unit_ = 1 << kWidestBits;  // bytes of a cell: all accesses so far are whole cells
  std::vector<Entry> log_;                      // of the sequence numbers from log_start_
  u32 log_start_ = 1, sequence_ = 0;            // sequence number of the last access
  u32 passed_ = 0;                              // barriers that the current wave has passed
  u32 ordered_by_last_ = 0, ordered_by_previous_ = 0;  // what the last two completed phases order
  u32 first_between_ = 0;  // first sequence number between a signal and its wait, since the last phase was complete
  Noted conflict_{};
  u64 conflict_address_ = 0;
};

}  // namespace emu
