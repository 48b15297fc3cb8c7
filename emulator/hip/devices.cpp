// Parses the list of emulated devices and answers questions about them.
#include "hip/devices.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "machine/family.hpp"
#include "platform/platform.hpp"

namespace emu::hip {
namespace {

const Device kKnown[] = {
#include "devices.inc"
};

constexpr std::string_view kDefaultDevice = "gfx1201";
constexpr std::string_view kBlanks = " \t\n\v\f\r";

std::string_view without_blanks(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlanks);
  return first == std::string_view::npos ? "" : text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

// Blanks and empty parts of the list mean nothing; a name that comes twice is two devices.
DeviceList parse_devices() {
  const std::string setting = platform::environment("FLASH_ATTN_ROCM_EMULATE");
  std::string_view rest = without_blanks(setting);
  if (rest.empty()) rest = kDefaultDevice;
  DeviceList list;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const std::string_view name = without_blanks(rest.substr(0, comma));
    rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
    if (name.empty()) continue;
    const Device* found = nullptr;
    std::string known;
    for (const Device& device : kKnown) {
      if (find_family(device.family) == nullptr) continue;  // a GPU whose instructions are not emulated
      if (name == device.gfx) found = &device;
      known += std::string(known.empty() ? "" : ", ") + device.gfx;
    }
    if (found == nullptr)
      return {{}, "FLASH_ATTN_ROCM_EMULATE names " + std::string(name) + ", which cannot be emulated; known: " + known};
    list.devices.push_back(*found);
  }
  if (list.devices.empty()) list.error = "FLASH_ATTN_ROCM_EMULATE names no GPU; expected names such as gfx1201";
  return list;
}

// gfx1201 is 12.0 step 1: the last digit is the step, the one before it the minor version.
void version_of(const Device& device, int& major, int& minor) {
  const std::string digits = std::string(device.gfx).substr(3);
  major = std::atoi(digits.substr(0, digits.size() - 2).c_str());
  minor = digits[digits.size() - 2] - '0';
}

constexpr int kMaxThreadsPerBlock = 1024;
constexpr int kRegistersPerBlock = 65536;
constexpr int kThreadsPerProcessor = 2048;

}  // namespace

const DeviceList& emulated_devices() {
  static const DeviceList list = parse_devices();
  return list;
}

DeviceProperties properties_of(const Device& device) {
  DeviceProperties p{};
  std::snprintf(p.name, sizeof p.name, "%s (emulated)", device.product);
  std::snprintf(p.gcn_arch_name, sizeof p.gcn_arch_name, "%s", device.gfx);
  p.total_global_mem = device.memory_bytes;
  p.shared_mem_per_block = p.shared_mem_per_multiprocessor = device.lds_bytes;
  p.regs_per_block = kRegistersPerBlock;
  p.warp_size = device.wave_size;
  p.max_threads_per_block = kMaxThreadsPerBlock;
  for (int& extent : p.max_threads_dim) extent = kMaxThreadsPerBlock;
  p.max_grid_size[0] = 2147483647;
  p.max_grid_size[1] = p.max_grid_size[2] = 65535;
  version_of(device, p.major, p.minor);
  p.multi_processor_count = device.multiprocessors;
  p.can_map_host_memory = p.concurrent_kernels = p.unified_addressing = p.host_register_supported = 1;
  p.l2_cache_size = device.l2_bytes;
  p.max_threads_per_multi_processor = kThreadsPerProcessor;
  return p;
}

bool attribute_of(const Device& device, int attribute, int& value) {
  const DeviceProperties p = properties_of(device);
  switch (static_cast<Attribute>(attribute)) {
    case Attribute::kCanMapHostMemory:
    case Attribute::kConcurrentKernels:
    case Attribute::kUnifiedAddressing:
      value = 1;
      return true;
    case Attribute::kCooperativeLaunch:
    case Attribute::kIntegrated:
      value = 0;
      return true;
    case Attribute::kMaxBlockDimY:
    case Attribute::kMaxBlockDimZ:
      value = p.max_threads_dim[1];
      return true;
    case Attribute::kMaxGridDimY:
    case Attribute::kMaxGridDimZ:
      value = p.max_grid_size[1];
      return true;
    case Attribute::kSharedMemPerMultiprocessor:
      value = int(p.shared_mem_per_multiprocessor);
      return true;
    case Attribute::kL2CacheSize:
      value = p.l2_cache_size;
      return true;
    case Attribute::kComputeCapabilityMajor:
      value = p.major;
      return true;
    case Attribute::kComputeCapabilityMinor:
      value = p.minor;
      return true;
    case Attribute::kMaxBlockDimX:
      value = p.max_threads_dim[0];
      return true;
    case Attribute::kMaxGridDimX:
      value = p.max_grid_size[0];
      return true;
    case Attribute::kMaxThreadsPerBlock:
      value = p.max_threads_per_block;
      return true;
    case Attribute::kMaxThreadsPerMultiProcessor:
      value = p.max_threads_per_multi_processor;
      return true;
    case Attribute::kMultiprocessorCount:
      value = p.multi_processor_count;
      return true;
    case Attribute::kMaxRegistersPerBlock:
      value = p.regs_per_block;
      return true;
    case Attribute::kMaxSharedMemoryPerBlock:
      value = int(p.shared_mem_per_block);
      return true;
    case Attribute::kWarpSize:
      value = p.warp_size;
      return true;
    case Attribute::kHostRegisterSupported:
      value = 1;
      return true;
    default:
      return false;
  }
}

}  // namespace emu::hip
