// Runs one workgroup: its waves take turns, each running until a barrier or its end, or for a random while.
#pragma once
#include <memory>
#include <vector>

#include "machine/launch.hpp"
#include "machine/wave.hpp"

namespace emu {

// Addresses that the runtime hands to every wave.
struct LaunchAddresses {
  u64 arguments = 0, packet = 0;
};

// Memory for one workgroup at a time; each worker thread has one and uses it again and again.
class WorkgroupRunner {
 public:
  virtual ~WorkgroupRunner() = default;
  // Runs workgroup (x, y, z). Returns the wave that faulted, or null.
  virtual const WaveState* run(u32 x, u32 y, u32 z) = 0;
  u64 executed() const { return executed_; }
  // See Workgroup::visits.
  const std::vector<s64>& visits() const { return visits_; }

 protected:
  u64 executed_ = 0;
  std::vector<s64> visits_;
};

// The request's family says the wave size.
std::unique_ptr<WorkgroupRunner> make_runner(const LaunchRequest& request, const LaunchAddresses& addresses,
                                             const MemoryMap& memory);
// Defined once per wave size by machine/lane_runner.hpp.
std::unique_ptr<WorkgroupRunner> make_runner_wave32(const LaunchRequest& request, const LaunchAddresses& addresses,
                                                    const MemoryMap& memory);
std::unique_ptr<WorkgroupRunner> make_runner_wave64(const LaunchRequest& request, const LaunchAddresses& addresses,
                                                    const MemoryMap& memory);

}  // namespace emu
