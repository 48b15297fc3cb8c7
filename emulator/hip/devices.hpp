// The emulated devices: which GPUs FLASH_ATTN_ROCM_EMULATE asks for, with their facts from archs/*.toml.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "hip/hip_types.hpp"

namespace emu::hip {

struct Device {
  const char* gfx;
  const char* family;
  const char* product;
  int wave_size;
  std::uint32_t lds_bytes;
  int multiprocessors;
  int l2_bytes;
  std::size_t memory_bytes;
};

struct DeviceList {
  std::vector<Device> devices;
  std::string error;  // why the list is empty
};

// Read once per process. FLASH_ATTN_ROCM_EMULATE is a comma list of gfx names; unset or blank means gfx1201.
const DeviceList& emulated_devices();

DeviceProperties properties_of(const Device& device);
// Value of an attribute; false where the emulator does not know it.
bool attribute_of(const Device& device, int attribute, int& value);

}  // namespace emu::hip
