// Device memory, registered host memory and copies.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "hip/runtime.hpp"

namespace emu::hip {
namespace {

constexpr std::size_t kRedZone = 4096;  // on both sides of an allocation, so that neighbours are never adjacent
constexpr unsigned char kRedByte = 0xE7;

std::uintptr_t number(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

bool red_zone_intact(const Allocation& allocation) {
  for (std::size_t i = 0; i < kRedZone; ++i)
    if (allocation.block[i] != kRedByte || allocation.block[kRedZone + allocation.bytes + i] != kRedByte) return false;
  return true;
}

}  // namespace

Error Runtime::allocate(void** pointer, std::size_t bytes, int device) {
  if (pointer == nullptr) return kErrorInvalidValue;
  *pointer = nullptr;
  if (bytes == 0) return kSuccess;  // as HIP: null and success
  const std::size_t total = properties_of(emulated_devices().devices[static_cast<std::size_t>(device)]).total_global_mem;
  if (bytes > total - std::min(total, allocated_on(device))) return kErrorOutOfMemory;
  const std::size_t whole = (bytes + 2 * kRedZone + 4095) & ~std::size_t(4095);
  auto* block = static_cast<unsigned char*>(std::aligned_alloc(4096, whole));
  if (block == nullptr) return kErrorOutOfMemory;
  std::memset(block, kRedByte, whole);
  for (std::size_t i = 0; i < bytes; ++i) block[kRedZone + i] = static_cast<unsigned char>(kPoison >> (8 * (i % 4)));
  *pointer = block + kRedZone;
  allocations_[number(*pointer)] = {device, bytes, block};
  return kSuccess;
}

Error Runtime::release(void* pointer) {
  if (pointer == nullptr) return kSuccess;
  const auto found = allocations_.find(number(pointer));
  if (found == allocations_.end()) return kErrorInvalidValue;
  const bool intact = red_zone_intact(found->second);
  if (!intact)
    set_fault("hipFree: something wrote next to the " + std::to_string(found->second.bytes) +
              " bytes of this allocation");
  std::free(found->second.block);
  allocations_.erase(found);
  return intact ? kSuccess : kErrorIllegalAddress;
}

Error Runtime::register_host(void* pointer, std::size_t bytes) {
  if (pointer == nullptr || bytes == 0) return kErrorInvalidValue;
  return registered_.emplace(number(pointer), bytes).second ? kSuccess : kErrorHostMemoryAlreadyRegistered;
}

Error Runtime::unregister_host(void* pointer) {
  return registered_.erase(number(pointer)) == 1 ? kSuccess : kErrorHostMemoryNotRegistered;
}

std::size_t Runtime::allocated_on(int device) const {
  std::size_t bytes = 0;
  for (const auto& [address, allocation] : allocations_)
    if (allocation.device == device) bytes += allocation.bytes;
  return bytes;
}

bool Runtime::inside_allocation(const void* pointer, std::size_t bytes) const {
  for (const auto& [key, module] : modules_) {  // global variables
    const std::uintptr_t image = number(module->object->image());
    for (const CodeObject::Range& range : module->object->writable())
      if (number(pointer) >= image + range.begin && number(pointer) + bytes <= image + range.end) return true;
  }
  auto after = allocations_.upper_bound(number(pointer));
  if (after == allocations_.begin()) return false;
  --after;
  return number(pointer) + bytes <= after->first + after->second.bytes;
}

Error Runtime::copy(void* target, const void* source, std::size_t bytes, int kind) {
  if (bytes == 0) return kSuccess;
  if (target == nullptr || source == nullptr) return kErrorInvalidValue;
  if (kind < kHostToHost || kind > kDefault) return kErrorInvalidMemcpyDirection;
  const bool to_device = kind == kHostToDevice || kind == kDeviceToDevice,
             from_device = kind == kDeviceToHost || kind == kDeviceToDevice;
  if ((to_device && !inside_allocation(target, bytes)) || (from_device && !inside_allocation(source, bytes)))
    return kErrorInvalidValue;
  std::memmove(target, source, bytes);
  return kSuccess;
}

Error Runtime::fill(void* target, int value, std::size_t bytes) {
  if (bytes == 0) return kSuccess;
  if (!inside_allocation(target, bytes)) return kErrorInvalidValue;
  std::memset(target, value, bytes);
  return kSuccess;
}

PointerAttributes Runtime::attributes_of(const void* pointer) const {
  void* const same = const_cast<void*>(pointer);  // host and device addresses are equal
  auto after = allocations_.upper_bound(number(pointer));
  if (after != allocations_.begin() && number(pointer) < std::prev(after)->first + std::prev(after)->second.bytes)
    return {2, std::prev(after)->second.device, same, nullptr, 0, 0};
  auto host = registered_.upper_bound(number(pointer));
  if (host != registered_.begin() && number(pointer) < std::prev(host)->first + std::prev(host)->second)
    return {1, 0, same, same, 0, 0};
  return {0, -1, nullptr, nullptr, 0, 0};
}

std::vector<MemoryRange> Runtime::ranges_of(int device) const {
  std::vector<MemoryRange> ranges;
  for (const auto& [address, allocation] : allocations_)
    if (allocation.device == device) ranges.push_back({address, address + allocation.bytes, true, "hipMalloc"});
  for (const auto& [address, bytes] : registered_)
    ranges.push_back({address, address + bytes, true, "registered host memory"});
  return ranges;
}

}  // namespace emu::hip
