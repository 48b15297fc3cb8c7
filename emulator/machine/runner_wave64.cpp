// The workgroup runner for waves of 64 lanes.
#define EMU_LANES 64
#include "machine/lane_runner.hpp"

namespace emu {

std::unique_ptr<WorkgroupRunner> make_runner_wave64(const LaunchRequest& request, const LaunchAddresses& addresses,
                                                    const MemoryMap& memory) {
  return std::make_unique<LaneRunner>(request, addresses, memory);
}

}  // namespace emu
