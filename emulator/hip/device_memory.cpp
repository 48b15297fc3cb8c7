// Maps and fills the memory of an allocation.
#include "hip/device_memory.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "machine/types.hpp"
#include "platform/platform.hpp"

namespace emu::hip {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kRedZone = kPage;  // so that neighbours are never adjacent
constexpr unsigned char kRedByte = 0xE7;
// Bytes of the file of poison that is mapped again and again. At 288 GiB the mappings are still a tenth of the 65530
// that Linux allows a process.
constexpr std::size_t kPoisonFile = std::size_t(64) << 20;

void write_poison(unsigned char* to, std::size_t bytes) {
  for (std::size_t i = 0; i + 4 <= bytes; i += 4) std::memcpy(to + i, &kPoison, 4);
  std::memcpy(to + bytes / 4 * 4, &kPoison, bytes % 4);
}

}  // namespace

DeviceMemory::DeviceMemory(std::size_t bytes) : bytes_(bytes) {
  if (bytes > ~std::size_t(0) - 2 * kRedZone - kPage) throw std::bad_alloc();
  whole_ = (bytes + 2 * kRedZone + kPage - 1) / kPage * kPage;
  block_ = static_cast<unsigned char*>(platform::map_pages(whole_));
  if (block_ == nullptr) throw std::bad_alloc();
  std::memset(block_, kRedByte, kRedZone);
  fill_with_poison();
  std::memset(data() + bytes_, kRedByte, whole_ - kRedZone - bytes_);
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : block_(std::exchange(other.block_, nullptr)), bytes_(other.bytes_), whole_(other.whole_) {}

DeviceMemory::~DeviceMemory() {
  if (block_ != nullptr) platform::unmap_pages(block_, whole_);
}

unsigned char* DeviceMemory::data() const { return block_ + kRedZone; }

void DeviceMemory::fill_with_poison() {
  using platform::Sharing;
  const Sharing sharing =
      bytes_ < kPoisonFile ? Sharing::kImpossible : platform::share_pages(data(), bytes_, kPoisonFile, write_poison);
  if (sharing == Sharing::kImpossible) write_poison(data(), bytes_);
  if (sharing != Sharing::kOutOfMemory) return;
  platform::unmap_pages(block_, whole_);
  throw std::bad_alloc();
}

bool DeviceMemory::red_zones_intact() const {
  const auto is_red = [](unsigned char byte) { return byte == kRedByte; };
  return std::all_of(block_, data(), is_red) && std::all_of(data() + bytes_, data() + bytes_ + kRedZone, is_red);
}

}  // namespace emu::hip
