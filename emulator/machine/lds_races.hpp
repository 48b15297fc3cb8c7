// Race detector for LDS: remembers who wrote and read each byte last, and orders accesses by the barriers between.
#pragma once
#include <immintrin.h>

#include <vector>

#include "machine/wave.hpp"

namespace emu {

// An access before a wave's n-th signal comes before an access of another wave behind its n-th wait; any other two
// accesses of different waves may happen in either order, so at most reads may share a byte.
class LdsRaces {
 public:
  struct Access {
    u32 wave, ordinal;
    u32 signals;  // barriers signalled before it
    bool write;
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
    bool is_unordered(u32 other) const { return other > ordered && ((other ^ id) & kWaveMask) != 0; }
  };
  Instruction begin(const WaveState& wave, const Op& op, u32 current_phase);
  // One lane's access. False: another wave's access to a byte of it is not ordered; see conflict().
  template <bool kWrite, u32 kBytes>
  [[gnu::always_inline]] bool note(const Instruction& now, u64 address) {
    if (((address | kBytes) & (unit_ - 1)) != 0) [[unlikely]]
      refine(u32(address | kBytes));
    Cell* cell = &cells_[address >> unit_bits_];
    Cell* const end = cell + (kBytes >> unit_bits_);
    for (; end - cell >= 2; cell += 2)
      if (!note_pair<kWrite>(now, cell)) [[unlikely]]
        return false;
    return cell == end || note_one<kWrite>(now, cell);
  }
  // The other access, its byte, and whether it wrote; valid after note() returned false.
  const Access& conflict() const { return conflict_; }
  u64 conflict_address() const { return conflict_address_; }

 private:
  static constexpr u32 kWaveBits = 5, kWaveMask = (1 << kWaveBits) - 1;
  static constexpr u32 kWidestBits = 4;  // an access has 16 bytes at most
  // Ids of the last accesses to one unit of LDS.
  struct Cell {
    u32 written = 0, read = 0;
    u32 read_before = 0;  // the last read by another wave than `read`
    u32 unused = 0;       // so that an index is a shift
  };
  template <bool kWrite>
  [[gnu::always_inline]] bool note_one(const Instruction& now, Cell* cell) {
    const bool read_by_other = now.is_unordered(cell->read);
    bool clash = now.is_unordered(cell->written);
    if (kWrite) clash |= read_by_other | now.is_unordered(cell->read_before);
    if (clash && is_conflict(now, *cell, kWrite)) [[unlikely]]
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
    const __m256i unordered = _mm256_andnot_si256(_mm256_cmpeq_epi32(other_bits, _mm256_setzero_si256()),
                                                  _mm256_cmpgt_epi32(ids, _mm256_set1_epi32(int(now.ordered))));
    constexpr int kLooksAt = kWrite ? 0x77 : 0x11;  // the members of Cell, a bit each
    if ((_mm256_movemask_ps(_mm256_castsi256_ps(unordered)) & kLooksAt) != 0)
      if (is_conflict(now, cell[0], kWrite) || is_conflict(now, cell[1], kWrite)) [[unlikely]]
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
  void refine(u32 multiple_of_unit);
  bool is_conflict(const Instruction& now, const Cell& cell, bool write);
  bool is_conflict(const Instruction& now, u32 id, bool write, const Cell& cell);

  struct Entry {
    u32 ordinal, signals;
  };
  std::vector<Cell> cells_;
  u32 unit_bits_ = kWidestBits, unit_ = 1 << kWidestBits;  // bytes of a cell: all accesses so far are whole cells
  std::vector<Entry> log_;                      // of the sequence numbers from log_start_
  u32 log_start_ = 1, sequence_ = 0;            // sequence number of the last access
  u32 passed_ = 0;                              // barriers that the current wave has passed
  u32 ordered_by_last_ = 0, ordered_by_previous_ = 0;  // what the last two completed phases order
  u32 first_between_ = 0;  // first sequence number between a signal and its wait, since the last phase was complete
  Access conflict_{};
  u64 conflict_address_ = 0;
};

}  // namespace emu
