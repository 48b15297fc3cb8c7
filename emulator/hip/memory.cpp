// Device memory, registered host memory and copies.
#include <algorithm>
#include <cstring>
#include <new>

#include "hip/runtime.hpp"

namespace emu::hip {
namespace {

std::uintptr_t number(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

// Whether [pointer, pointer + bytes) lies in [begin, begin + size); no sum can overflow.
bool holds(std::uintptr_t begin, std::size_t size, const void* pointer, std::size_t bytes) {
  const std::uintptr_t offset = number(pointer) - begin;
  return number(pointer) >= begin && offset <= size && bytes <= size - offset;
}

constexpr std::uintptr_t kAddressSpace = std::uintptr_t(1) << 56;  // of a program on x86-64, with the largest page tables

// Whether the range ends within the address space.
bool can_exist(const void* pointer, std::size_t bytes) { return holds(0, kAddressSpace, pointer, bytes); }

}  // namespace

Error Runtime::allocate(void** pointer, std::size_t bytes, int device) {
  if (pointer == nullptr) return kErrorInvalidValue;
  *pointer = nullptr;
  if (bytes == 0) return kSuccess;  // as HIP: null and success
  const std::size_t total = properties_of(emulated_devices().devices[static_cast<std::size_t>(device)]).total_global_mem;
  if (bytes > total - std::min(total, allocated_on(device))) return kErrorOutOfMemory;
  try {
    DeviceMemory memory(bytes);
    void* const data = memory.data();
    allocations_.emplace(number(data), Allocation{device, bytes, std::move(memory)});
    *pointer = data;
    return kSuccess;
  } catch (const std::bad_alloc&) {
    return kErrorOutOfMemory;
  }
}

Error Runtime::release(void* pointer) {
  if (pointer == nullptr) return kSuccess;
  const auto found = allocations_.find(number(pointer));
  if (found == allocations_.end()) return kErrorInvalidValue;
  const bool intact = found->second.memory.red_zones_intact();
  if (!intact)
    set_fault("hipFree: something wrote next to the " + std::to_string(found->second.bytes) +
              " bytes of this allocation");
  allocations_.erase(found);
  return intact ? kSuccess : kErrorIllegalAddress;
}

Error Runtime::register_host(void* pointer, std::size_t bytes) {
  if (pointer == nullptr || bytes == 0 || !can_exist(pointer, bytes)) return kErrorInvalidValue;
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
      if (holds(image + range.begin, range.end - range.begin, pointer, bytes)) return true;
  }
  auto after = allocations_.upper_bound(number(pointer));
  if (after == allocations_.begin()) return false;
  --after;
  return holds(after->first, after->second.bytes, pointer, bytes);
}

Error Runtime::copy(void* target, const void* source, std::size_t bytes, int kind) {
  if (bytes == 0) return kSuccess;
  if (target == nullptr || source == nullptr) return kErrorInvalidValue;
  if (!can_exist(target, bytes) || !can_exist(source, bytes)) return kErrorInvalidValue;
  if (kind < kHostToHost || kind > kDefault) return kErrorInvalidMemcpyDirection;
  // By default the pointers say what they are; one into an allocation must not leave it whatever the kind.
  const bool to_device = kind == kHostToDevice || kind == kDeviceToDevice || inside_allocation(target, 1),
             from_device = kind == kDeviceToHost || kind == kDeviceToDevice || inside_allocation(source, 1);
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
