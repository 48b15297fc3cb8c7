// The slow path of the race detector, and what barriers do.
#include "machine/lds_races.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace emu {
namespace {

constexpr u32 kLastSequence = u32(1) << 25;  // room is left for the accesses until the phase is complete
constexpr std::size_t kKeptLog = 4096;       // entries that may be out of date before they are dropped

}  // namespace

LdsRaces::LdsRaces(u32 lds_bytes) : cells_((lds_bytes >> kWidestBits) + 1), postponed_(kMostPostponed) {}

void LdsRaces::start() {
  std::fill(cells_.begin(), cells_.end(), Cell{});
  changed_before_.clear();
  postponed_count_ = last_change_ = change_by_other_ = 0;
  log_.clear();
  log_start_ = 1;
  sequence_ = ordered_by_last_ = ordered_by_previous_ = first_between_ = 0;
}

void LdsRaces::complete_phase() {
  if (sequence_ > kLastSequence) {
    start();
    return;
  }
  ordered_by_previous_ = ordered_by_last_;
  ordered_by_last_ = first_between_ != 0 ? first_between_ - 1 : sequence_;
  first_between_ = 0;
  const auto is_over = [this](const PostponedLoads& loads) {
    return !loads.now.is_after(ordered_by_previous_ << kWaveBits | kWaveMask);
  };
  const auto first = postponed_.begin(), end = first + postponed_count_;
  postponed_count_ = u32(std::move(std::find_if_not(first, end, is_over), end, first) - first);
  if (ordered_by_previous_ < log_start_ + kKeptLog) return;
  log_.erase(log_.begin(), log_.begin() + (ordered_by_previous_ + 1 - log_start_));
  log_start_ = ordered_by_previous_ + 1;
}

LdsRaces::Instruction LdsRaces::begin(const WaveState& wave, const Op& op, u32 current_phase, Access access) {
  ++sequence_;
  log_.push_back({op.ordinal, wave.barrier_phase});
  if (wave.passed_phase != wave.barrier_phase && first_between_ == 0) first_between_ = sequence_;
  passed_ = wave.passed_phase;
  const u32 ordered = passed_ == current_phase ? ordered_by_last_ : ordered_by_previous_;
  const Instruction now{sequence_ << kWaveBits | wave.index, ordered << kWaveBits | kWaveMask};
  if (access == Access::kLoad) return now;
  if (((last_change_ ^ now.id) & kWaveMask) != 0) change_by_other_ = last_change_;
  last_change_ = now.id;
  if (postponed_count_ != 0 && postponed_[postponed_count_ - 1].now.is_after(now.ordered)) note_postponed();
  return now;
}

void LdsRaces::postpone(const Instruction& now, const u32* addresses, u32 lanes, u32 bytes) {
  if (postponed_count_ == kMostPostponed) note_postponed();
  PostponedLoads& loads = postponed_[postponed_count_++];
  loads.now = now;
  loads.lanes = lanes;
  loads.bytes = bytes;
  std::memcpy(loads.addresses, addresses, lanes * sizeof *addresses);
}

// They clash with nothing: no change by another wave was unordered when they came.
void LdsRaces::note_postponed() {
  for (u32 i = 0; i < postponed_count_; ++i) {
    const PostponedLoads& loads = postponed_[i];
    u32 multiple = loads.bytes;
    for (u32 lane = 0; lane < loads.lanes; ++lane) multiple |= loads.addresses[lane];
    if ((multiple & (unit_ - 1)) != 0) refine(multiple);
    for (u32 lane = 0; lane < loads.lanes; ++lane)
      for (u32 at = 0; at < loads.bytes; at += unit_)
        note_read(loads.now, &cells_[(loads.addresses[lane] + at) >> unit_bits_]);
  }
  postponed_count_ = 0;
}

// Cells become smaller when a narrower or less aligned access comes. That loses nothing, because every access so far
// was to whole cells.
void LdsRaces::refine(u32 multiple_of_unit) {
  const u32 bits = u32(__builtin_ctz(multiple_of_unit)), parts = u32(1) << (unit_bits_ - bits);
  const auto split = [parts](auto& values) {
    std::remove_reference_t<decltype(values)> finer;
    finer.reserve(values.size() * parts);
    for (const auto& value : values) finer.insert(finer.end(), parts, value);
    values = std::move(finer);
  };
  split(cells_);
  split(changed_before_);
  unit_bits_ = bits;
  unit_ = u32(1) << bits;
}

// Atomic accesses are rare, so they need no fast path of their own.
bool LdsRaces::note_atomic(const Instruction& now, Cell* cell) {
  if (is_conflict(now, *cell, Access::kAtomic)) return false;
  changed_before_.resize(cells_.size());
  if (now.is_unordered(cell->changed)) changed_before_[std::size_t(cell - cells_.data())] = cell->changed;
  cell->changed = now.id;
  return true;
}

bool LdsRaces::is_conflict(const Instruction& now, const Cell& cell, Access access, u64 place) {
  const auto clashes = [&](u32 id, Access other) { return is_conflict(now, id, other, place); };
  if (clashes(cell.written, Access::kStore)) return true;
  if (access != Access::kLoad && (clashes(cell.read, Access::kLoad) || clashes(cell.read_before, Access::kLoad)))
    return true;
  if (access == Access::kAtomic || changed_before_.empty()) return false;
  const u32 before = changed_before_[place];
  return clashes(cell.changed, Access::kAtomic) || clashes(before, Access::kAtomic);
}

bool LdsRaces::is_conflict(const Instruction& now, u32 id, Access access, u64 place) {
  if (!now.is_unordered(id)) return false;
  const Entry& entry = log_[(id >> kWaveBits) - log_start_];
  if (passed_ > entry.signals) return false;
  conflict_ = {id & kWaveMask, entry.ordinal, entry.signals, access};
  conflict_address_ = place << unit_bits_;
  return true;
}

}  // namespace emu
