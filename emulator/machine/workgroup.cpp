// Starts and schedules the waves of a workgroup.
#include "machine/workgroup.hpp"

#include <algorithm>

#include "semantics/memory.hpp"

namespace emu {

WorkgroupRunner::WorkgroupRunner(const LaunchRequest& request, const LaunchAddresses& addresses,
                                 const MemoryMap& memory)
    : request_(request), addresses_(addresses), threads_(request.block[0] * request.block[1] * request.block[2]) {
  const KernelDescriptor& kernel = *request.kernel;
  group_.lds_bytes = kernel.lds_bytes + request.dynamic_lds_bytes;
  group_.scratch_bytes = kernel.scratch_bytes;
  group_.memory = &memory;
  group_.instruction_limit = request.instruction_limit;
  waves_ = std::vector<Wave>((threads_ + kLanes - 1) / kLanes);
  lds_.resize(group_.lds_bytes / 4 + 1);
  scratch_.resize(u64(group_.scratch_bytes) * kLanes / 4 * waves_.size() + 1);
  group_.lds = reinterpret_cast<u8*>(lds_.data());
}

const Wave* WorkgroupRunner::run(u32 x, u32 y, u32 z) {
  std::fill(lds_.begin(), lds_.end(), kPoison);
  std::fill(scratch_.begin(), scratch_.end(), kPoison);
  group_.live_waves = u32(waves_.size());
  group_.signalled = group_.phase = 0;
  for (u32 i = 0; i < waves_.size(); ++i) start_wave(waves_[i], i, x, y, z);
  while (group_.live_waves != 0) {
    bool progress = false;
    for (Wave& wave : waves_) {
      if (wave.status == WaveStatus::kEnded) continue;
      progress |= run_wave(wave);
      if (wave.status == WaveStatus::kFaulted) return &wave;
    }
    if (progress) continue;
    for (Wave& wave : waves_) {
      if (wave.status != WaveStatus::kBarrier) continue;
      stop_with_fault(&wave, wave.resume, "the workgroup's waves wait at a barrier that can never complete");
      return &wave;
    }
  }
  for (const Wave& wave : waves_) executed_ += wave.executed;
  return nullptr;
}

// Returns whether the wave did anything.
bool WorkgroupRunner::run_wave(Wave& wave) {
  if (wave.status == WaveStatus::kBarrier && group_.phase < wave.barrier_phase) return false;
  wave.status = WaveStatus::kRunning;
  wave.resume->handler(&wave, wave.resume);
  if (wave.status != WaveStatus::kEnded) return true;
  // An ended wave no longer takes part in barriers (ISA guide 5.6).
  --group_.live_waves;
  if (group_.signalled != 0 && group_.signalled >= group_.live_waves) {
    group_.signalled = 0;
    ++group_.phase;
  }
  return true;
}

void WorkgroupRunner::start_wave(Wave& wave, u32 index, u32 x, u32 y, u32 z) {
  std::fill(std::begin(wave.v), std::end(wave.v), U32(kPoison));
  std::fill(std::begin(wave.s), std::begin(wave.s) + kFirstConstant, kPoison);
  std::copy(request_.program->constants.begin(), request_.program->constants.end(), wave.s + kFirstConstant);
  wave.s[kNull] = 0;
  wave.scc = false;
  wave.status = WaveStatus::kRunning;
  wave.barrier_phase = 0;
  wave.index = index;
  wave.group = &group_;
  wave.scratch = reinterpret_cast<u8*>(scratch_.data()) + u64(index) * kLanes * group_.scratch_bytes;
  wave.executed = 0;
  wave.resume = &request_.program->ops[request_.program->entry];
  wave.block_start = wave.resume->ordinal;
  std::fill(std::begin(wave.recent), std::end(wave.recent), AddressRange{});
  const u32 first = index * kLanes;
  const u32 active = std::min<u32>(kLanes, threads_ - first);
  wave.set_exec(active == kLanes ? ~u32(0) : (u32(1) << active) - 1);
  start_registers(wave, x, y, z);
}

// LLVM's AMDGPU usage document, "Initial Kernel Execution State"; workgroup ids come in trap registers on gfx12.
void WorkgroupRunner::start_registers(Wave& wave, u32 x, u32 y, u32 z) const {
  const KernelDescriptor& kernel = *request_.kernel;
  u32 next = 0;
  const auto put_pair = [&](bool enabled, u64 value) {
    if (!enabled) return;
    wave.s[next] = u32(value);
    wave.s[next + 1] = u32(value >> 32);
    next += 2;
  };
  next += kernel.private_segment_buffer ? 4 : 0;
  put_pair(kernel.dispatch_ptr, addresses_.packet);
  next += kernel.queue_ptr ? 2 : 0;
  put_pair(kernel.kernarg_ptr, addresses_.arguments);
  put_pair(kernel.dispatch_id, 0);
  next += kernel.flat_scratch_init ? 2 : 0;
  if (kernel.private_segment_size) wave.s[next] = kernel.scratch_bytes;
  wave.s[kTtmp0 + 9] = x;
  wave.s[kTtmp0 + 7] = y | (z << 16);
  const u32 first = wave.index * kLanes;
  for (u32 lane = 0; lane < u32(kLanes); ++lane) {
    const u32 item = first + lane;
    const u32 ix = item % request_.block[0], iy = item / request_.block[0] % request_.block[1],
              iz = item / request_.block[0] / request_.block[1];
    wave.v[0][lane] =
        ix | (kernel.workitem_id_mode >= 1 ? iy << 10 : 0) | (kernel.workitem_id_mode >= 2 ? iz << 20 : 0);
  }
}

const Op* stop_with_fault(Wave* wave, const Op* op, const std::string& reason) {
  wave->status = WaveStatus::kFaulted;
  wave->fault_op = op;
  wave->fault_reason = reason;
  wave->fault_is_address = false;
  wave->fault_lane = -1;
  return nullptr;
}

const Op* stop_with_bad_address(Wave* wave, const Op* op, const std::string& reason, int lane, u64 address) {
  stop_with_fault(wave, op, reason);
  wave->fault_is_address = true;
  wave->fault_lane = lane;
  wave->fault_address = address;
  return nullptr;
}

namespace sem {

const u8* find_slowly(Wave* wave, const Op* op, u64 address, u32 size, Access access, int lane) {
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

}  // namespace sem
}  // namespace emu
