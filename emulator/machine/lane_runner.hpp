// Starts and schedules the waves of a workgroup, for one wave size. Included by machine/runner_wave<size>.cpp only.
#pragma once
#include <algorithm>
#include <vector>

#include "machine/family.hpp"
#include "machine/lds_races.hpp"
#include "machine/turns.hpp"
#include "machine/vector_wave.hpp"
#include "machine/wait_check.hpp"
#include "machine/workgroup.hpp"

namespace emu::inline EMU_WAVE {

inline constexpr u32 kAddTid = 1 << 23;  // in the last word of a buffer descriptor

class LaneRunner final : public WorkgroupRunner {
 public:
  LaneRunner(const LaunchRequest& request, const LaunchAddresses& addresses, const MemoryMap& memory);
  const WaveState* run(u32 x, u32 y, u32 z) override;

 private:
  void start_wave(Wave& wave, u32 index, u32 x, u32 y, u32 z);
  void start_registers(Wave& wave, u32 x, u32 y, u32 z) const;
  void put_workgroup_ids(Wave& wave, u32 x, u32 y, u32 z) const;
  bool run_wave(Wave& wave);

  const LaunchRequest& request_;
  const LaunchAddresses addresses_;
  Workgroup group_;
  u32 threads_ = 0;
  std::vector<Wave> waves_;
  std::vector<u32> lds_, scratch_;
  std::unique_ptr<LdsRaces> races_;
  std::vector<OutstandingLoads> outstanding_;  // per wave
  Turns turns_;
};

inline LaneRunner::LaneRunner(const LaunchRequest& request, const LaunchAddresses& addresses, const MemoryMap& memory)
    : request_(request),
      addresses_(addresses),
      threads_(request.block[0] * request.block[1] * request.block[2]),
      turns_((threads_ + kLanes - 1) / kLanes, request.checks.order) {
  const KernelDescriptor& kernel = *request.kernel;
  group_.lds_bytes = kernel.lds_bytes + request.dynamic_lds_bytes;
  group_.scratch_bytes = kernel.scratch_bytes;
  group_.memory = &memory;
  group_.mode = kernel.mode;
  group_.instruction_limit = request.instruction_limit;
  group_.program = request.program.get();
  visits_.resize(request.program->pcs.size() + 1);
  group_.visits = visits_.data();
  waves_ = std::vector<Wave>((threads_ + kLanes - 1) / kLanes);
  lds_.resize(group_.lds_bytes / 4 + 1);
  scratch_.resize(u64(group_.scratch_bytes) * kLanes / 4 * waves_.size() + 1);
  group_.lds = reinterpret_cast<u8*>(lds_.data());
  outstanding_.resize(waves_.size());
  if (!request.checks.races || waves_.size() == 1) return;
  races_ = std::make_unique<LdsRaces>(group_.lds_bytes);
  group_.races = races_.get();
}

inline const WaveState* LaneRunner::run(u32 x, u32 y, u32 z) {
  std::fill(lds_.begin(), lds_.end(), kPoison);
  std::fill(scratch_.begin(), scratch_.end(), kPoison);
  group_.live_waves = u32(waves_.size());
  group_.signalled = group_.phase = 0;
  if (races_ != nullptr) races_->start();
  turns_.start(request_.checks.seed ^ (u64(z) << 42) ^ (u64(y) << 21) ^ x);
  for (u32 i = 0; i < waves_.size(); ++i) start_wave(waves_[i], i, x, y, z);
  while (group_.live_waves != 0) {
    bool progress = false;
    for (const u32 index : turns_.next_round()) {
      Wave& wave = waves_[index];
      if (wave.status == WaveStatus::kEnded) continue;
      wave.turn = turns_.length();
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
inline bool LaneRunner::run_wave(Wave& wave) {
  if (wave.status == WaveStatus::kBarrier && group_.phase < wave.barrier_phase) return false;
  wave.status = WaveStatus::kRunning;
  wave.resume->handler(&wave, wave.resume);
  if (wave.status != WaveStatus::kEnded) return true;
  // An ended wave no longer takes part in barriers (ISA guide 5.6).
  --group_.live_waves;
  if (group_.signalled != 0 && group_.signalled >= group_.live_waves) complete_phase(group_);
  return true;
}

inline void LaneRunner::start_wave(Wave& wave, u32 index, u32 x, u32 y, u32 z) {
  const VgprCounts counts = request_.kernel->vgpr_counts(*request_.family);
  std::fill_n(wave.v, counts.vector, U32(kPoison));
  std::fill_n(wave.v + kAgpr0, counts.accumulation, U32(kPoison));
  std::fill(std::begin(wave.s), std::begin(wave.s) + kFirstConstant, kPoison);
  std::copy(request_.program->constants.begin(), request_.program->constants.end(), wave.s + kFirstConstant);
  wave.s[kNull] = 0;
  wave.scc = false;
  wave.status = WaveStatus::kRunning;
  wave.barrier_phase = wave.passed_phase = 0;
  outstanding_[index].clear();
  wave.outstanding = &outstanding_[index];
  wave.index = index;
  wave.group = &group_;
  wave.scratch = reinterpret_cast<u8*>(scratch_.data()) + u64(index) * kLanes * group_.scratch_bytes;
  wave.executed = 0;
  wave.resume = &request_.program->ops[request_.program->entry];
  wave.block_start = wave.resume->ordinal;
  std::fill(std::begin(wave.recent), std::end(wave.recent), AddressRange{});
  const u32 first = index * kLanes;
  const u32 active = std::min<u32>(kLanes, threads_ - first);
  wave.set_exec(active == kLanes ? ~LaneMask(0) : (LaneMask(1) << active) - 1);
  start_registers(wave, x, y, z);
}

// LLVM's AMDGPU usage document, "Initial Kernel Execution State".
inline void LaneRunner::start_registers(Wave& wave, u32 x, u32 y, u32 z) const {
  const KernelDescriptor& kernel = *request_.kernel;
  u32 next = 0;
  const auto put_pair = [&](bool enabled, u64 value) {
    if (!enabled) return;
    wave.s[next] = u32(value);
    wave.s[next + 1] = u32(value >> 32);
    next += 2;
  };
  put_pair(kernel.private_segment_buffer, reinterpret_cast<u64>(wave.scratch) | u64(1) << 63);  // swizzled
  put_pair(kernel.private_segment_buffer, group_.scratch_bytes * u64(kLanes) | u64(kAddTid) << 32);
  put_pair(kernel.dispatch_ptr, addresses_.packet);
  next += kernel.queue_ptr ? 2 : 0;
  put_pair(kernel.kernarg_ptr, addresses_.arguments);
  put_pair(kernel.dispatch_id, 0);
  next += kernel.flat_scratch_init ? 2 : 0;
  if (kernel.private_segment_size) wave.s[next] = kernel.scratch_bytes;
  put_workgroup_ids(wave, x, y, z);
  const u32 first = wave.index * kLanes;
  for (u32 lane = 0; lane < u32(kLanes); ++lane) {
    const u32 item = first + lane;
    const u32 ix = item % request_.block[0], iy = item / request_.block[0] % request_.block[1],
              iz = item / request_.block[0] / request_.block[1];
    wave.v[0][lane] =
        ix | (kernel.workitem_id_mode >= 1 ? iy << 10 : 0) | (kernel.workitem_id_mode >= 2 ? iz << 20 : 0);
  }
}

// In trap registers, or in the SGPRs behind the user SGPRs, those that the kernel asks for.
inline void LaneRunner::put_workgroup_ids(Wave& wave, u32 x, u32 y, u32 z) const {
  const KernelDescriptor& kernel = *request_.kernel;
  if (!request_.family->workgroup_ids_in_sgprs) {
    wave.s[kTtmp0 + 9] = x;
    wave.s[kTtmp0 + 7] = y | (z << 16);
    return;
  }
  u32 next = kernel.user_sgprs;
  const u32 ids[3] = {x, y, z};
  for (int axis = 0; axis < 3; ++axis)
    if (kernel.workgroup_id[axis]) wave.s[next++] = ids[axis];
  next += kernel.workgroup_info ? 1 : 0;
  if (request_.family->scratch_wave_offset && kernel.private_segment_buffer) wave.s[next] = 0;
}

}  // namespace emu::inline EMU_WAVE
