// Looks addresses up among the ranges a kernel may touch.
#include "machine/memory_map.hpp"

#include <algorithm>
#include <cstdio>

namespace emu {

MemoryMap::MemoryMap(std::vector<MemoryRange> ranges) : ranges_(std::move(ranges)) {
  std::sort(ranges_.begin(), ranges_.end(),
            [](const MemoryRange& a, const MemoryRange& b) { return a.begin < b.begin; });
}

const MemoryRange* MemoryMap::find(u64 address, u64 size) const {
  if (address + size < address) return nullptr;
  auto after = std::upper_bound(ranges_.begin(), ranges_.end(), address,
                                [](u64 value, const MemoryRange& range) { return value < range.begin; });
  // Registered host ranges may overlap, so earlier starts are tried too; allocations never do.
  while (after != ranges_.begin()) {
    --after;
    if (address + size <= after->end) return &*after;
  }
  return nullptr;
}

std::string MemoryMap::describe_near(u64 address) const {
  const MemoryRange* nearest = nullptr;
  u64 best = ~u64(0);
  for (const MemoryRange& range : ranges_) {
    const u64 distance = address < range.begin ? range.begin - address : address >= range.end ? address - range.end : 0;
    if (distance > best) continue;
    best = distance;
    nearest = &range;
  }
  if (nearest == nullptr) return "no memory is allocated";
  char text[160];
  const bool before = address < nearest->begin, after = address >= nearest->end;
  std::snprintf(text, sizeof text, "%llu bytes %s the %llu bytes at 0x%llx (%s%s)",
                static_cast<unsigned long long>(before  ? best
                                                : after ? best
                                                        : address - nearest->begin),
                before  ? "before the start of"
                : after ? "past the end of"
                        : "into",
                static_cast<unsigned long long>(nearest->end - nearest->begin),
                static_cast<unsigned long long>(nearest->begin), nearest->name.c_str(),
                nearest->writable ? "" : ", read only");
  return text;
}

}  // namespace emu
