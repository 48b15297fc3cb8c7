// Spreads workgroups over threads and turns a wave's fault into a report.
#include "machine/launch.hpp"

#include <xmmintrin.h>

#include <atomic>
#include <mutex>
#include <system_error>
#include <thread>

#include "machine/kernel_arguments.hpp"
#include "machine/workgroup.hpp"
#include "platform/platform.hpp"

namespace emu {
namespace {

constexpr u32 kLargestScratch = 1 << 20;
constexpr u32 kLargestBlock = 1024;  // work-items along one axis

std::string hex(u64 value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

std::string report(const LaunchRequest& request, const WaveState& wave, const MemoryMap& memory, const u32 (&id)[3]) {
  const u32 ordinal = wave.fault_op->ordinal;
  std::string text = "kernel " + request.program->kernel + ", pc " + hex(request.program->pcs[ordinal]) +
                     ", instruction \"" + request.program->texts[ordinal] + "\": " + wave.fault_reason +
                     "; workgroup (" + std::to_string(id[0]) + ", " + std::to_string(id[1]) + ", " +
                     std::to_string(id[2]) + "), wave " + std::to_string(wave.index);
  if (wave.fault_lane >= 0) text += ", lane " + std::to_string(wave.fault_lane);
  if (wave.fault_is_address) {
    text += ", address " + hex(wave.fault_address);
    const bool poison = u32(wave.fault_address) == kPoison || u32(wave.fault_address >> 32) == kPoison;
    if (poison) text += " (computed from a register or memory that was never written)";
    const std::string& reason = wave.fault_reason;
    if (reason.find("LDS") == std::string::npos && reason.find("scratch") == std::string::npos)
      text += ", which is " + memory.describe_near(wave.fault_address);
  }
  if (request.checks.order) text += "; seed of the wave order " + std::to_string(request.checks.seed);
  return text;
}

LaunchResult fault_result(bool bad_address, std::string text) {
  LaunchResult result;
  result.faulted = true;
  result.bad_address = bad_address;
  result.fault = std::move(text);
  return result;
}

// Sums the straight runs up to executions of each instruction.
void add_profile(const Program& program, const std::vector<s64>& visits, std::array<u64, kClasses>& profile) {
  s64 executions = 0;
  for (std::size_t i = 0; i < program.classes.size(); ++i) {
    executions += visits[i];
    profile[std::size_t(program.classes[i])] += u64(executions);
  }
}

// Sets how f32 arithmetic treats denormals while in scope: FTZ (bit 15) for results, DAZ (bit 6) for inputs.
class DenormalMode {
 public:
  explicit DenormalMode(u32 mode) : saved_(_mm_getcsr()) {
    _mm_setcsr((saved_ & ~0xE040u) | (mode & 1 ? 0u : 0x0040u) | (mode & 2 ? 0u : 0x8000u));
  }
  ~DenormalMode() { _mm_setcsr(saved_); }
  DenormalMode(const DenormalMode&) = delete;
  DenormalMode& operator=(const DenormalMode&) = delete;

 private:
  u32 saved_;
};

}  // namespace

std::optional<std::string> check_request(const LaunchRequest& request) {
  const KernelDescriptor& kernel = *request.kernel;
  const u64 threads = u64(request.block[0]) * request.block[1] * request.block[2];
  for (int axis = 0; axis < 3; ++axis) {
    if (request.grid[axis] == 0 || request.block[axis] == 0) return "a grid or block extent is 0";
    if (request.block[axis] > kLargestBlock) return "a block extent is more than " + std::to_string(kLargestBlock);
    if (u64(request.grid[axis]) * request.block[axis] > ~u32(0)) return "a grid has more than 2^32 - 1 threads in a row";
  }
  if (threads > kernel.max_workgroup_size)
    return "block has " + std::to_string(threads) + " threads, kernel " + kernel.name + " allows " +
           std::to_string(kernel.max_workgroup_size);
  if (request.grid[1] > 65535 || request.grid[2] > 65535) return "grid y and z are limited to 65535";
  if (u64(kernel.lds_bytes) + request.dynamic_lds_bytes > request.lds_limit_bytes)
    return "kernel " + kernel.name + " needs more than " + std::to_string(request.lds_limit_bytes) + " bytes of LDS";
  if (kernel.scratch_bytes > kLargestScratch)
    return "kernel " + kernel.name + " needs more than " + std::to_string(kLargestScratch) +
           " bytes of scratch per work-item";
  if (request.arguments.size() < kernel.explicit_kernarg_bytes)
    return "kernel " + kernel.name + " takes " + std::to_string(kernel.explicit_kernarg_bytes) +
           " bytes of arguments, " + std::to_string(request.arguments.size()) + " were given";
  return std::nullopt;
}

LaunchResult launch(const LaunchRequest& request) {
  const KernelArguments arguments(request);
  std::vector<MemoryRange> ranges = request.memory;
  ranges.push_back(arguments.arguments_range());
  ranges.push_back(arguments.packet_range());
  const u64 image = reinterpret_cast<u64>(request.object->image());
  ranges.push_back({image, image + request.object->image_bytes(), false, "code object"});
  for (const CodeObject::Range& range : request.object->writable())
    ranges.push_back({image + range.begin, image + range.end, true, "global variables of the code object"});
  const MemoryMap memory(std::move(ranges));
  const LaunchAddresses addresses{arguments.arguments_address(), arguments.packet_address()};

  const u64 total = u64(request.grid[0]) * request.grid[1] * request.grid[2];
  std::atomic<u64> next{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  LaunchResult result;
  const auto keep_fault = [&](LaunchResult fault) {
    stop = true;
    const std::lock_guard lock(mutex);
    if (!result.faulted) result = std::move(fault);
  };
  const auto work = [&] {
    const DenormalMode mode(request.kernel->denormal_mode_f32);
    const auto runner = make_runner(request, addresses, memory);
    for (u64 i; !stop.load(std::memory_order_relaxed) && (i = next.fetch_add(1)) < total;) {
      const u32 id[3] = {u32(i % request.grid[0]), u32(i / request.grid[0] % request.grid[1]),
                         u32(i / request.grid[0] / request.grid[1])};
      if (const WaveState* faulted = runner->run(id[0], id[1], id[2]))
        keep_fault(
            fault_result(faulted->fault_is_address && !faulted->fault_is_race, report(request, *faulted, memory, id)));
    }
    const std::lock_guard lock(mutex);
    result.executed += runner->executed();
    add_profile(*request.program, runner->visits(), result.profile);
  };
  const auto work_safely = [&] {  // an exception must not leave a thread
    try {
      work();
    } catch (const std::exception& error) {
      keep_fault(fault_result(false, "kernel " + request.program->kernel + ": " + error.what()));
    }
  };
  const u64 workers = std::min<u64>(platform::usable_cores(), total);
  std::vector<std::thread> threads;
  try {
    for (u64 i = 1; i < workers; ++i) threads.emplace_back(work_safely);
  } catch (const std::system_error&) {  // no more threads to be had: those there are do the work
  }
  work_safely();
  for (std::thread& thread : threads) thread.join();
  return result;
}

}  // namespace emu
