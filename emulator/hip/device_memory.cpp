// Maps and fills the memory of an allocation.
#include "hip/device_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "machine/types.hpp"

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

// A file in memory that is full of poison, made at the first call; -1 where that is impossible.
int poison_file() {
  static const int file = [] {
    const int made = memfd_create("poison", MFD_CLOEXEC);
    if (made < 0) return -1;
    void* const memory = ftruncate(made, kPoisonFile) == 0
                             ? mmap(nullptr, kPoisonFile, PROT_READ | PROT_WRITE, MAP_SHARED, made, 0)
                             : MAP_FAILED;
    if (memory == MAP_FAILED) {
      close(made);
      return -1;
    }
    write_poison(static_cast<unsigned char*>(memory), kPoisonFile);
    munmap(memory, kPoisonFile);
    return made;
  }();
  return file;
}

}  // namespace

DeviceMemory::DeviceMemory(std::size_t bytes) : bytes_(bytes) {
  if (bytes > ~std::size_t(0) - 2 * kRedZone - kPage) throw std::bad_alloc();
  whole_ = (bytes + 2 * kRedZone + kPage - 1) / kPage * kPage;
  void* const memory =
      mmap(nullptr, whole_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  block_ = static_cast<unsigned char*>(memory);
  std::memset(block_, kRedByte, kRedZone);
  fill_with_poison();
  std::memset(data() + bytes_, kRedByte, whole_ - kRedZone - bytes_);
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : block_(std::exchange(other.block_, nullptr)), bytes_(other.bytes_), whole_(other.whole_) {}

DeviceMemory::~DeviceMemory() {
  if (block_ != nullptr) munmap(block_, whole_);
}

unsigned char* DeviceMemory::data() const { return block_ + kRedZone; }

void DeviceMemory::fill_with_poison() {
  if (bytes_ < kPoisonFile || poison_file() < 0) {
    write_poison(data(), bytes_);
    return;
  }
  for (std::size_t done = 0; done < bytes_; done += kPoisonFile) {
    const std::size_t part = std::min(kPoisonFile, bytes_ - done);
    if (mmap(data() + done, part, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED, poison_file(), 0) !=
        MAP_FAILED)
      continue;
    munmap(block_, whole_);
    throw std::bad_alloc();
  }
}

bool DeviceMemory::red_zones_intact() const {
  const auto is_red = [](unsigned char byte) { return byte == kRedByte; };
  return std::all_of(block_, data(), is_red) && std::all_of(data() + bytes_, data() + bytes_ + kRedZone, is_red);
}

}  // namespace emu::hip
