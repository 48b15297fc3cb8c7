// The memory a kernel may touch: allocations, registered host ranges, the code image and the kernel arguments, byte
// exact.
#pragma once
#include <string>
#include <vector>

#include "machine/types.hpp"

namespace emu {

struct MemoryRange {
  u64 begin = 0, end = 0;  // [begin, end)
  bool writable = true;
  std::string name;  // for reports: "hipMalloc", "registered host range", ...
};

// Immutable during a launch, so that worker threads read it without locks.
class MemoryMap {
 public:
  explicit MemoryMap(std::vector<MemoryRange> ranges);
  // The range that holds [address, address + size), or null. Where registered ranges overlap, the widest that starts
  // first wins.
  const MemoryRange* find(u64 address, u64 size) const;
  // Words about the ranges around an address, for fault reports.
  std::string describe_near(u64 address) const;

 private:
  std::vector<MemoryRange> ranges_;  // sorted by begin
};

}  // namespace emu
