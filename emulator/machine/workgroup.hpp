// Runs one workgroup: its waves take turns, each running until a barrier or its end.
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
  WorkgroupRunner(const LaunchRequest& request, const LaunchAddresses& addresses, const MemoryMap& memory);
  // Runs workgroup (x, y, z). Returns the wave that faulted, or null.
  const Wave* run(u32 x, u32 y, u32 z);
  u64 executed() const { return executed_; }

 private:
  void start_wave(Wave& wave, u32 index, u32 x, u32 y, u32 z);
  void start_registers(Wave& wave, u32 x, u32 y, u32 z) const;
  bool run_wave(Wave& wave);

  const LaunchRequest& request_;
  const LaunchAddresses addresses_;
  Workgroup group_;
  u32 threads_ = 0;
  std::vector<Wave> waves_;
  std::vector<u32> lds_, scratch_;
  u64 executed_ = 0;
};

}  // namespace emu
