// What the library needs to know about a device, read from the HIP runtime once per device, never per launch.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "head_grouping.hpp"
#include "hip_loader.hpp"

namespace flash_attn_rocm {

struct DeviceFacts
{
    std::string name;
    std::string gfx; // without feature suffixes: "gfx90a", not "gfx90a:sramecc+:xnack-"
    int multiprocessors = 0;
    int wave_size       = 0;
    CacheSize cache;            // last-level cache
    bool head_grouping = false; // heads are launched in groups that fit it
};

// What is known of a GPU's last-level cache without the driver.
struct CacheTableEntry
{
    std::int64_t bytes = 0;
    bool head_grouping = false;
};

class DeviceCache
{
public:
    // Thread safe; the reference stays valid for the life of the process.
    const DeviceFacts& facts(const HipRuntime& hip, int device);

    // Counts for devices whose facts are read later. What the driver says of the size comes first.
    void set_cache(const std::string& gfx, CacheTableEntry entry);

private:
    DeviceFacts read_facts(const HipRuntime& hip, int device);

    std::mutex mutex_;
    std::map<int, std::unique_ptr<DeviceFacts>> facts_;
    std::map<std::string, CacheTableEntry> caches_; // by GPU
};

int device_count(const HipRuntime& hip);

} // namespace flash_attn_rocm
