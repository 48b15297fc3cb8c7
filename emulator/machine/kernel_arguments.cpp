// Fills kernel arguments by the metadata's value_kind, and the dispatch packet.
#include "machine/kernel_arguments.hpp"

#include <algorithm>
#include <new>
#include <stdexcept>
#include <string_view>

namespace emu {
namespace {

constexpr std::align_val_t kAlignment{64};

// LLVM's AMDGPU usage document, "Code Object V5 Metadata", table of value_kind. Pointers to services that the emulator
// does not have (printf, hostcall, heap, queues) are null.
u64 hidden_value(const LaunchRequest& request, std::string_view kind) {
  for (int axis = 0; axis < 3; ++axis) {
    const std::string suffix = std::string("_") + "xyz"[axis];
    if (kind == "hidden_block_count" + suffix) return request.grid[axis];
    if (kind == "hidden_group_size" + suffix) return request.block[axis];
    if (kind == "hidden_remainder" + suffix || kind == "hidden_global_offset" + suffix) return 0;
  }
  if (kind == "hidden_grid_dims") return 3;
  if (kind == "hidden_dynamic_lds_size") return request.dynamic_lds_bytes;
  for (const std::string_view absent :
       {"hidden_none", "hidden_printf_buffer", "hidden_hostcall_buffer", "hidden_default_queue",
        "hidden_completion_action", "hidden_multigrid_sync_arg", "hidden_heap_v1", "hidden_private_base",
        "hidden_shared_base", "hidden_queue_ptr"})
    if (kind == absent) return 0;
  throw std::runtime_error("kernel " + request.kernel->name + " wants the hidden argument " + std::string(kind) +
                           ", which is not emulated");
}

}  // namespace

void KernelArguments::Delete::operator()(u8* memory) const { operator delete[](memory, kAlignment); }

KernelArguments::KernelArguments(const LaunchRequest& request) : argument_bytes_(request.kernel->kernarg_bytes) {
  const u64 bytes = (kPacketBytes + argument_bytes_ + 127) & ~u64(63);
  memory_.reset(new(kAlignment) u8[bytes]);
  for (u64 i = 0; i + 4 <= bytes; i += 4) std::memcpy(memory_.get() + i, &kPoison, 4);
  const u64 given = std::min<u64>(request.arguments.size(), request.kernel->explicit_kernarg_bytes);
  std::memcpy(memory_.get() + kPacketBytes, request.arguments.data(), given);
  fill_hidden(request);
  fill_packet(request);
}

void KernelArguments::fill_hidden(const LaunchRequest& request) {
  for (const KernelArgument& argument : request.kernel->hidden) {
    const u64 value = hidden_value(request, argument.kind);
    std::memcpy(memory_.get() + kPacketBytes + argument.offset, &value, std::min<u64>(argument.size, sizeof value));
  }
}

// HSA system architecture, "Kernel dispatch packet".
void KernelArguments::fill_packet(const LaunchRequest& request) {
  struct Packet {
    u16 header, setup, workgroup[3], reserved0;
    u32 grid[3], private_bytes, group_bytes;
    u64 kernel_object, kernarg, reserved1, completion_signal;
  } packet{};
  static_assert(sizeof(Packet) == kPacketBytes);
  packet.header = 2;  // kernel dispatch
  packet.setup = 3;   // dimensions
  for (int axis = 0; axis < 3; ++axis) {
    packet.workgroup[axis] = u16(request.block[axis]);
    packet.grid[axis] = request.grid[axis] * request.block[axis];
  }
  packet.private_bytes = request.kernel->scratch_bytes;
  packet.group_bytes = request.kernel->lds_bytes + request.dynamic_lds_bytes;
  packet.kernel_object = reinterpret_cast<u64>(request.object->image()) + request.kernel->address;
  packet.kernarg = arguments_address();
  std::memcpy(memory_.get(), &packet, sizeof packet);
}

MemoryRange KernelArguments::arguments_range() const {
  return {arguments_address(), arguments_address() + argument_bytes_, false, "kernel arguments"};
}
MemoryRange KernelArguments::packet_range() const {
  return {packet_address(), packet_address() + kPacketBytes, false, "dispatch packet"};
}

}  // namespace emu
