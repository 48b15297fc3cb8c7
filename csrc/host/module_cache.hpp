// Loads code objects when a kernel of theirs is first launched on a device, and keeps them.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "hip_loader.hpp"
#include "manifest.hpp"

namespace flash_attn_rocm {

class ModuleCache
{
public:
    struct Function
    {
        HipFunction handle = nullptr;
        std::atomic<std::uint64_t> launches{0};
    };

    // The kernel's function on the current device, which must be `device`; valid for the life of the process. Thread
    // safe. Throws Error when the code object is missing or is not the file kernels.json describes.
    Function& function(const HipRuntime& hip, int device, const Manifest& manifest, const KernelInfo& kernel);

    // Launches per kernel name since the process started; of kernels that were launched.
    std::map<std::string, std::uint64_t> launch_counts();

private:
    struct Module
    {
        HipModule handle = nullptr;
        std::vector<char> image; // kept: the runtime may read it lazily
    };

    Module& module(const HipRuntime& hip, int device, const Manifest& manifest, const CodeObject& object);

    std::mutex mutex_;
    std::map<std::pair<int, std::string>, Module> modules_;           // by device and path
    std::map<std::pair<int, const KernelInfo*>, Function> functions_; // by device and kernel
};

// The bytes of a code object, checked against the size and SHA-256 in its manifest.
std::vector<char> read_code_object(const Manifest& manifest, const CodeObject& object);

} // namespace flash_attn_rocm
