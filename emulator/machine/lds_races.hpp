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
    bool is_after(u32 other) const { return id > other; }
    bool is_unordered(u32 other) const { return is_recent(other) && ((other ^ id) & kWaveMask) != 0; }
  };
  Instruction begin(const WaveState& wave, const Op& op, u32 current_phase, Access access);
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
  // The accesses of all lanes, where none of them can be unordered with another wave's. Otherwise false, and nothing is
  // noted.
  template <Access kAccess, u32 kBytes>
  bool note_all(const Instruction& now, const u32* addresses, u32 lanes) {
    if (kAccess == Access::kLoad && !others_changed(now)) {
      postpone(now, addresses, lanes, kBytes);
      return true;
    }
    return note_cells<kAccess, kBytes>(now, addresses, lanes);
  }
  // The other access and its byte; valid after note() returned false.
  const Noted& conflict() const { return conflict_; }
  u64 conflict_address() const { return conflict_address_; }

 private:
  static constexpr u32 kWaveBits = 5, kWaveMask = (1 << kWaveBits) - 1;
  static constexpr u32 kWidestBits = 4;  // an access has 16 bytes at most
  static constexpr u32 kMostLanes = 64, kMostPairs = 4;

  // As note_all, whatever other waves did.
  template <Access kAccess, u32 kBytes>
  bool note_cells(const Instruction& now, const u32* addresses, u32 lanes) {
    if (!changed_before_.empty()) return false;
    u32 bits = kBytes;
    for (u32 i = 0; i < lanes; ++i) bits |= addresses[i];
    if ((bits & (unit_ - 1)) != 0) [[unlikely]]
      refine(bits);
    constexpr bool kWrite = kAccess == Access::kStore;
    const u32 cells = kBytes >> unit_bits_;
    if (cells == 1) return note_single_cells<kWrite>(now, addresses, lanes);
    return cells <= 2 * kMostPairs && note_pairs<kWrite>(now, addresses, lanes, cells / 2);
  }
  // Whether another wave changed anything that is not ordered before this instruction, or may have by atomic accesses.
  bool others_changed(const Instruction& now) const {
    return !changed_before_.empty() || now.is_unordered(last_change_) || now.is_unordered(change_by_other_);
  }
  void postpone(const Instruction& now, const u32* addresses, u32 lanes, u32 bytes);
  void note_postponed();
  // Ids of the last accesses to one unit of LDS.
  struct Cell {
    u32 written = 0, read = 0;
    u32 read_before = 0;  // the last read by another wave than `read`
    u32 changed = 0;      // the last atomic access; the one before it by another wave is in changed_before_
  };
  template <bool kWrite>
  [[gnu::always_inline]] bool note_one(const Instruction& now, Cell* cell) {
    constexpr Access kAccess = kWrite ? Access::kStore : Access::kLoad;
    bool clash = now.is_unordered(cell->written);
    if (kWrite) clash |= now.is_unordered(cell->read) || now.is_unordered(cell->read_before);
    // Even where this wave's own atomic access is the last, another wave's may be the one before.
    clash |= now.is_recent(cell->changed);
    if (clash && is_conflict(now, *cell, kAccess)) [[unlikely]]
      return false;
    if (kWrite)
      cell->written = now.id;
    else
      note_read(now, cell);
    return true;
  }
  static void note_read(const Instruction& now, Cell* cell) {
    const bool same_wave = ((cell->read ^ now.id) & kWaveMask) == 0;
    if (now.id < cell->read) {  // it was postponed, and later ones were not
      if (!same_wave && now.id > cell->read_before) cell->read_before = now.id;
      return;
    }
    if (!same_wave) cell->read_before = cell->read;
    cell->read = now.id;
  }
  // Two cells at once: those of their ids that may clash, and what they become.
  struct Judged {
    __m256i clash, noted;
    template <bool kWrite>
    static bool has_clash(__m256i clash) {
      constexpr int kLooksAt = kWrite ? 0xFF : 0x99;  // the members of Cell, a bit each; of the last, as in note_one
      return (_mm256_movemask_ps(_mm256_castsi256_ps(clash)) & kLooksAt) != 0;
    }
  };
  // Ids are below 2^31, so signed compares serve.
  template <bool kWrite>
  [[gnu::always_inline]] static Judged judge(const Instruction& now, __m256i ids) {
    const __m256i id = _mm256_set1_epi32(int(now.id));
    const __m256i other_bits = _mm256_and_si256(_mm256_xor_si256(ids, id), _mm256_set1_epi32(kWaveMask));
    const __m256i recent = _mm256_cmpgt_epi32(ids, _mm256_set1_epi32(int(now.ordered)));
    const __m256i unordered =
        _mm256_andnot_si256(_mm256_cmpeq_epi32(other_bits, _mm256_setzero_si256()), recent);
    __m256i noted = _mm256_blend_epi32(ids, id, kWrite ? 0x11 : 0x22);
    if (!kWrite) {  // read_before = read where that is another wave's
      const __m256i read = _mm256_shuffle_epi32(ids, 0b11'01'01'00);
      const __m256i by_other = _mm256_shuffle_epi32(unordered, 0b11'01'01'00);
      noted = _mm256_blend_epi32(noted, _mm256_blendv_epi8(ids, read, by_other), 0x44);
    }
    return {_mm256_blend_epi32(unordered, recent, 0x88), noted};
  }
  template <bool kWrite>
  [[gnu::always_inline]] bool note_pair(const Instruction& now, Cell* cell) {
    const Judged judged = judge<kWrite>(now, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(cell)));
    constexpr Access kAccess = kWrite ? Access::kStore : Access::kLoad;
    if (Judged::has_clash<kWrite>(judged.clash))
      if (is_conflict(now, cell[0], kAccess) || is_conflict(now, cell[1], kAccess)) [[unlikely]]
        return false;
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(cell), judged.noted);
    return true;
  }
  // For all lanes, an even number of at most kMostLanes that access one cell each.
  template <bool kWrite>
  bool note_single_cells(const Instruction& now, const u32* addresses, u32 lanes) {
    const auto cell_of = [&](u32 lane) { return reinterpret_cast<__m128i*>(&cells_[addresses[lane] >> unit_bits_]); };
    __m256i noted[kMostLanes / 2];
    __m256i clash = _mm256_setzero_si256();
    for (u32 i = 0; i < lanes; i += 2) {
      const Judged judged = judge<kWrite>(now, _mm256_loadu2_m128i(cell_of(i + 1), cell_of(i)));
      clash = _mm256_or_si256(clash, judged.clash);
      noted[i / 2] = judged.noted;
    }
    if (Judged::has_clash<kWrite>(clash)) [[unlikely]]
      return false;
    for (u32 i = 0; i < lanes; i += 2) _mm256_storeu2_m128i(cell_of(i + 1), cell_of(i), noted[i / 2]);
    return true;
  }
  // For all lanes, at most kMostLanes that access at most kMostPairs pairs of cells each.
  template <bool kWrite>
  bool note_pairs(const Instruction& now, const u32* addresses, u32 lanes, u32 pairs) {
    const auto cells_of = [&](u32 lane) { return reinterpret_cast<__m256i*>(&cells_[addresses[lane] >> unit_bits_]); };
    __m256i noted[kMostLanes * kMostPairs];
    __m256i clash = _mm256_setzero_si256();
    __m256i* next = noted;
    for (u32 i = 0; i < lanes; ++i)
      for (u32 pair = 0; pair < pairs; ++pair) {
        const Judged judged = judge<kWrite>(now, _mm256_loadu_si256(cells_of(i) + pair));
        clash = _mm256_or_si256(clash, judged.clash);
        *next++ = judged.noted;
      }
    if (Judged::has_clash<kWrite>(clash)) [[unlikely]]
      return false;
    next = noted;
    for (u32 i = 0; i < lanes; ++i)
      for (u32 pair = 0; pair < pairs; ++pair) _mm256_storeu_si256(cells_of(i) + pair, *next++);
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
  // The loads of one instruction. They concern only changes that are not ordered with them, and mostly barriers come
  // first, so they wait for such a change or for being forgotten.
  struct PostponedLoads {
    Instruction now;
    u32 lanes, bytes;
    u32 addresses[kMostLanes];
  };
  static constexpr u32 kMostPostponed = 256;
  std::vector<Cell> cells_;
  std::vector<u32> changed_before_;  // per cell; empty before the first atomic access
  std::vector<PostponedLoads> postponed_;  // the first postponed_count_ of them, oldest first
  u32 postponed_count_ = 0;
  u32 last_change_ = 0, change_by_other_ = 0;  // ids of the last store or atomic, and of the last by another wave
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
