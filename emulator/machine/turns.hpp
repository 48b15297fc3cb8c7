// The order in which waves take turns: as they come, or random by seed.
#pragma once
#include <utility>
#include <vector>

#include "machine/types.hpp"

namespace emu {

class Turns {
 public:
  Turns(u32 waves, bool random) : random_(random && waves > 1) {
    for (u32 i = 0; i < waves; ++i) order_.push_back(i);
  }
  // A new workgroup.
  void start(u64 seed) { state_ = seed; }
  // Waves of the next round.
  const std::vector<u32>& next_round() {
    if (random_)
      for (u32 i = u32(order_.size()) - 1; i > 0; --i) std::swap(order_[i], order_[next() % (i + 1)]);
    return order_;
  }
  // Taken branches and LDS accesses of one turn. Turns are of all magnitudes, so that waves run far apart and are
  // interrupted anywhere. At least 2, so that every turn gets somewhere.
  u64 length() { return random_ ? 2 + (next() & ((u64(1) << (next() % kLongestBits)) - 1)) : ~u64(0); }

 private:
  static constexpr u64 kLongestBits = 9;

  // SplitMix64: small, and the same everywhere.
  u64 next() {
    state_ += 0x9E3779B97F4A7C15u;
    u64 value = state_;
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
    return value ^ (value >> 31);
  }

  bool random_;
  std::vector<u32> order_;
  u64 state_ = 0;
};

}  // namespace emu
