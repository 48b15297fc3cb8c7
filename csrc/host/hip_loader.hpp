// Finds the HIP runtime at run time and resolves the functions of hip_symbols.def, so that one build of this library
// works with every ROCm 6 and 7, with torch's own copy of the runtime, and with the emulated one.
#pragma once

#include <string>
#include <vector>

#include "hip_types.hpp"

namespace flash_attn_rocm {

struct HipApi
{
#define FA_HIP(type, name, parameters) type(*name) parameters = nullptr;
#include "hip_symbols.def"
#undef FA_HIP
};

struct HipRuntime
{
    HipApi api;
    std::string path;
    int version = 0;                          // major * 10,000,000 + minor * 100,000 + patch
    const char* (*emulator_fault)() = nullptr; // text of the last kernel fault; only the emulated runtime has it

    bool emulated() const { return emulator_fault != nullptr; }
};

struct HipSearch
{
    std::string explicit_path; // tried alone when not empty
    std::string torch_lib_dir; // where torch keeps its libraries; empty without torch
};

// One place to look for the runtime.
struct HipCandidate
{
    std::string name; // path, or file name for the system's search
    bool loaded_only; // take it only if this process has loaded it already
    std::string origin;
};

// Candidates, best first: the one in the process already (two runtimes in one process must not meet), then torch's,
// then the system's.
std::vector<HipCandidate> hip_candidates(const HipSearch& search);

// Loads the first usable candidate. Throws Error with every candidate and why it was rejected.
HipRuntime load_hip_runtime(const HipSearch& search);

// "6.4.43484" from 60443484.
std::string format_hip_version(int version);

// Throws Error when `status` is not success: the call, the error's name and text, and the emulator's fault report. The
// thread's last error in the runtime is then no longer set.
void check_hip(const HipRuntime& hip, HipError status, const std::string& what);

} // namespace flash_attn_rocm
