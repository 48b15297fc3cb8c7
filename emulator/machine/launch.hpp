// Runs a kernel: grid, kernel arguments, waves and worker threads.
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "machine/checks.hpp"
#include "machine/code_object.hpp"
#include "machine/memory_map.hpp"
#include "machine/program.hpp"

namespace emu {

struct Family;

struct LaunchRequest {
  const Family* family = nullptr;
  const CodeObject* object = nullptr;
  const KernelDescriptor* kernel = nullptr;
  std::shared_ptr<const Program> program;
  u32 grid[3] = {1, 1, 1};   // workgroups
  u32 block[3] = {1, 1, 1};  // work-items of a workgroup
  u32 dynamic_lds_bytes = 0;
  u32 lds_limit_bytes = 65536;
  std::vector<u8> arguments;        // the explicit kernel arguments
  std::vector<MemoryRange> memory;  // allocations and registered ranges
  u64 instruction_limit = 0;        // per wave
  Checks checks;
};

struct LaunchResult {
  bool faulted = false;
  bool bad_address = false;
  std::string fault;  // kernel, pc, instruction, lane, address, nearest allocation
  u64 executed = 0;   // wave instructions, those without effect on values included
  std::array<u64, kClasses> profile{};  // the same by class
};

// Why a request cannot be launched (geometry, arguments), or nothing.
std::optional<std::string> check_request(const LaunchRequest& request);

// Runs all workgroups and returns when they are done or one has faulted.
LaunchResult launch(const LaunchRequest& request);

}  // namespace emu
