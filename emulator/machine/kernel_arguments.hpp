// The memory that the runtime prepares for a kernel: its argument segment with hidden arguments, and the dispatch
// packet.
#pragma once
#include "machine/launch.hpp"

namespace emu {

class KernelArguments {
 public:
  // Throws std::runtime_error for a hidden argument of unknown kind.
  explicit KernelArguments(const LaunchRequest& request);
  u64 arguments_address() const { return reinterpret_cast<u64>(memory_.get()) + kPacketBytes; }
  u64 packet_address() const { return reinterpret_cast<u64>(memory_.get()); }
  MemoryRange arguments_range() const;
  MemoryRange packet_range() const;

 private:
  static constexpr u64 kPacketBytes = 64;
  void fill_hidden(const LaunchRequest& request);
  void fill_packet(const LaunchRequest& request);

  struct Delete {
    void operator()(u8* memory) const;
  };
  u32 argument_bytes_ = 0;
  std::unique_ptr<u8[], Delete> memory_;
};

}  // namespace emu
