// Finds the HIP runtime: candidates in order, a version check before anything else is resolved, all symbols by name.
#include "hip_loader.hpp"

#include "dynamic_library.hpp"
#include "error.hpp"
#include "text.hpp"

namespace flash_attn_rocm {
namespace {

constexpr int kMinimumVersion = 6 * 10'000'000; // HIP 6.0: first with hipGetDevicePropertiesR0600

#ifdef _WIN32
constexpr const char* kRuntimeNames[] = {"amdhip64_7.dll", "amdhip64_6.dll", "amdhip64.dll"};
constexpr char kSeparator             = '\\';
constexpr const char* kLibDirName     = "bin";
constexpr const char* kRootVariables[] = {"ROCM_PATH", "HIP_PATH"}; // the second is set by AMD's HIP SDK
#else
constexpr const char* kRuntimeNames[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"};
constexpr char kSeparator             = '/';
constexpr const char* kLibDirName     = "lib";
constexpr const char* kRootVariables[] = {"ROCM_PATH"};
#endif

template <class Function>
void resolve(LibraryHandle library, const char* name, Function& function, std::string& missing)
{
    function = reinterpret_cast<Function>(find_symbol(library, name));
    if(function == nullptr)
    {
        missing += missing.empty() ? name : std::string(", ") + name;
    }
}

// Fills `runtime` from an opened library; returns why it cannot be used, empty when it can.
std::string bind(LibraryHandle library, HipRuntime& runtime)
{
    HipApi& api = runtime.api;
    std::string missing;
    resolve(library, "hipRuntimeGetVersion", api.hipRuntimeGetVersion, missing);
    if(!missing.empty())
    {
        return "not a HIP runtime: it lacks " + missing;
    }
    if(const HipError status = api.hipRuntimeGetVersion(&runtime.version); status != kHipSuccess)
    {
        return concat("hipRuntimeGetVersion failed with error ", status);
    }
    if(runtime.version < kMinimumVersion)
    {
        return concat("its HIP version is ", format_hip_version(runtime.version), ", too old; needed: 6.0 or later");
    }
#define FA_HIP(type, name, parameters) resolve(library, #name, api.name, missing);
#include "hip_symbols.def"
#undef FA_HIP
    if(!missing.empty())
    {
        return concat("HIP ", format_hip_version(runtime.version), " lacks these functions: ", missing);
    }
    runtime.emulator_fault = reinterpret_cast<const char* (*)()>(
        find_symbol(library, "flash_attn_rocm_emulator_last_fault"));
    runtime.path = path_of_address(reinterpret_cast<const void*>(api.hipRuntimeGetVersion));
    return {};
}

std::string join(const std::string& directory, const char* name)
{
    return directory + kSeparator + name;
}

} // namespace

std::vector<HipCandidate> hip_candidates(const HipSearch& search)
{
    std::vector<HipCandidate> candidates;
    if(!search.explicit_path.empty())
    {
        candidates.push_back({search.explicit_path, false, "asked for"});
        return candidates;
    }
    for(const char* name : kRuntimeNames)
    {
        candidates.push_back({name, true, "loaded in this process"});
    }
    if(!search.torch_lib_dir.empty())
    {
        for(const char* name : kRuntimeNames)
        {
            candidates.push_back({join(search.torch_lib_dir, name), false, "beside torch"});
        }
    }
    for(const char* variable : kRootVariables)
    {
        const std::string root = environment(variable);
        for(const char* name : kRuntimeNames)
        {
            if(!root.empty())
            {
                candidates.push_back({join(join(root, kLibDirName), name), false, variable});
            }
        }
    }
    for(const char* name : kRuntimeNames)
    {
        candidates.push_back({name, false, "system search"});
    }
#ifndef _WIN32
    candidates.push_back({"/opt/rocm/lib/libamdhip64.so", false, "system search"});
#endif
    return candidates;
}

HipRuntime load_hip_runtime(const HipSearch& search)
{
    std::string rejected;
    for(const HipCandidate& candidate : hip_candidates(search))
    {
        std::string reason;
        LibraryHandle library = candidate.loaded_only ? find_loaded_library(candidate.name)
                                                      : open_library(candidate.name, reason);
        HipRuntime runtime;
        if(library == nullptr)
        {
            reason = candidate.loaded_only ? "not loaded" : reason;
        }
        else
        {
            reason = bind(library, runtime);
            if(reason.empty())
            {
                check_hip(runtime, runtime.api.hipInit(0), "hipInit");
                return runtime;
            }
        }
        rejected += concat("\n  ", candidate.name, " (", candidate.origin, "): ", reason);
        if(candidate.loaded_only && library != nullptr)
        {
            rejected += "\n  (no other candidate was tried: a second HIP runtime in one process does not work)";
            break;
        }
    }
    fail("No usable HIP runtime (HIP 6.0 or later is needed). Candidates:",
         rejected,
         "\nInstall ROCm 6 or 7 with a ROCm build of torch, set FLASH_ATTN_ROCM_HIP_LIBRARY to the runtime's path, or, "
         "without an AMD GPU, set FLASH_ATTN_ROCM_EMULATE=<gfx> (package flash-attn-rocm-emulator).");
}

std::string format_hip_version(int version)
{
    return concat(version / 10'000'000, '.', version / 100'000 % 100, '.', version % 100'000);
}

void check_hip(const HipRuntime& hip, HipError status, const std::string& what)
{
    if(status == kHipSuccess)
    {
        return;
    }
    // The runtime keeps a thread's last error until it is asked for; torch asks after its own launches, and would report
    // ours there, although the caller may have dealt with it.
    if(hip.api.hipGetLastError != nullptr)
    {
        hip.api.hipGetLastError();
    }
    const char* name = hip.api.hipGetErrorName != nullptr ? hip.api.hipGetErrorName(status) : nullptr;
    const char* text = hip.api.hipGetErrorString != nullptr ? hip.api.hipGetErrorString(status) : nullptr;
    std::string fault;
    if(hip.emulated())
    {
        const char* report = hip.emulator_fault();
        fault              = report != nullptr && *report != '\0' ? concat("\n", report) : "";
    }
    fail(what,
         " failed: ",
         name != nullptr ? name : "unknown HIP error",
         " (",
         status,
         "): ",
         text != nullptr ? text : "no text",
         fault);
}

} // namespace flash_attn_rocm
