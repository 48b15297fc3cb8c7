// The state of the library in this process: where to look for things, and what has been found so far.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "device_facts.hpp"
#include "hip_loader.hpp"
#include "manifest.hpp"
#include "module_cache.hpp"

namespace flash_attn_rocm {

class Library
{
public:
    static Library& instance();

    // Before the runtime is first used; throws Error afterwards if another runtime is in use.
    void use_hip_library(const std::string& path);
    void set_torch_lib_dir(const std::string& directory);

    // Adds a directory that holds <gfx>/kernels.json; earlier ones win.
    void add_kernel_path(const std::filesystem::path& directory);
    // Replaces them all. Manifests in use stay valid: what was loaded is kept.
    void set_kernel_paths(std::vector<std::filesystem::path> directories);
    std::vector<std::filesystem::path> kernel_paths();

    // The HIP runtime, loaded at the first call. Throws Error as load_hip_runtime does; a later call tries again.
    const HipRuntime& hip();

    // The kernels of a GPU, read at the first call; the reference stays valid for the life of the process. Throws Error
    // naming the package that would hold them when there are none.
    const Manifest& manifest(const std::string& gfx);

    // The environment's switches, read at the first call and by read_environment().
    GroupingSwitches grouping_switches();
    void read_environment();

    DeviceCache& devices() { return devices_; }
    ModuleCache& modules() { return modules_; }

private:
    const Manifest& find_manifest(const std::string& gfx);

    std::mutex mutex_;
    HipSearch search_;
    std::vector<std::filesystem::path> kernel_paths_;
    std::unique_ptr<HipRuntime> hip_;
    std::map<std::filesystem::path, std::unique_ptr<Manifest>> loaded_; // by path of kernels.json; never shrinks
    std::map<std::string, const Manifest*> manifests_;                  // by GPU, for the present kernel_paths_
    std::optional<GroupingSwitches> grouping_;
    DeviceCache devices_;
    ModuleCache modules_;
};

} // namespace flash_attn_rocm
