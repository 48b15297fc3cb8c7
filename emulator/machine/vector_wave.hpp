// A wave with its vector registers and its exec mask, per wave size.
#pragma once
#include "machine/lanes.hpp"
#include "machine/wave.hpp"

namespace emu::inline EMU_WAVE {

struct alignas(4 * kLanes) Wave : WaveState {
  S32 exec_lanes;      // exec expanded; follows s[kExec]
  U32 v[kVgprs + 16];  // the temporary, and room behind the last register

  LaneMask exec() const {
    if constexpr (kLanes == 32)
      return s[kExec];
    else
      return u64(s[kExec]) | u64(s[kExec + 1]) << 32;
  }
  void set_exec(LaneMask mask) {
    s[kExec] = u32(mask);
    if constexpr (kLanes == 64) s[kExec + 1] = u32(u64(mask) >> 32);
    exec_lanes = expand_mask(mask);
  }
};

}  // namespace emu::inline EMU_WAVE
