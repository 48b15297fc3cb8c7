// What the runners of all wave sizes share: choosing one, stopping waves, and finding memory.
#include "machine/workgroup.hpp"

#include "machine/family.hpp"

namespace emu {

std::unique_ptr<WorkgroupRunner> make_runner(const LaunchRequest& request, const LaunchAddresses& addresses,
                                             const MemoryMap& memory) {
  return request.family->wave_size == 64 ? make_runner_wave64(request, addresses, memory)
                                         : make_runner_wave32(request, addresses, memory);
}

const Op* stop_with_fault(WaveState* wave, const Op* op, const std::string& reason) {
  wave->status = WaveStatus::kFaulted;
  wave->fault_op = op;
  wave->fault_reason = reason;
  wave->fault_is_address = false;
  wave->fault_lane = -1;
  return nullptr;
}

const Op* stop_with_bad_address(WaveState* wave, const Op* op, const std::string& reason, int lane, u64 address) {
  stop_with_fault(wave, op, reason);
  wave->fault_is_address = true;
  wave->fault_lane = lane;
  wave->fault_address = address;
  return nullptr;
}

const Op* run_past_end(WaveState* wave, const Op* op) {
  return stop_with_fault(wave, op, "execution ran past the end of the kernel");
}

const u8* find_slowly(WaveState* wave, const Op* op, u64 address, u32 size, Access access, int lane) {
  const MemoryRange* range = wave->group->memory->find(address, size);
  const bool store = access == Access::kStore;
  if (range == nullptr || (store && !range->writable)) {
    const std::string what = std::string(store ? "store of " : "load of ") + std::to_string(size) + " bytes ";
    stop_with_bad_address(wave, op, what + (range == nullptr ? "outside every allocation" : "to read-only memory"),
                          lane, address);
    return nullptr;
  }
  wave->recent[recent_slot(op, access)] = {range->begin, range->end};
  return reinterpret_cast<const u8*>(address);
}

}  // namespace emu
