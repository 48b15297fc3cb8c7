// The host memory behind one allocation: filled with poison, with a red zone on either side.
#pragma once
#include <cstddef>

namespace emu::hip {

// Large allocations share their poison until it is overwritten, so that what is never written costs no memory.
class DeviceMemory {
 public:
  // Throws std::bad_alloc where the host has no memory or no address space left.
  explicit DeviceMemory(std::size_t bytes);
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&&) = delete;
  ~DeviceMemory();

  unsigned char* data() const;  // on a page boundary
  std::size_t bytes() const { return bytes_; }
  // Whether nothing was written just before or behind the memory.
  bool red_zones_intact() const;

 private:
  void fill_with_poison();

  unsigned char* block_ = nullptr;
  std::size_t bytes_ = 0, whole_ = 0;
};

}  // namespace emu::hip
