// What the library needs to know about a device, read from the HIP runtime once per device, never per launch.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "hip_loader.hpp"

namespace flash_attn_rocm {

struct DeviceFacts
{
    std::string name;
    std::string gfx; // without feature suffixes: "gfx90a", not "gfx90a:sramecc+:xnack-"
    int multiprocessors = 0;
    int wave_size       = 0;
};

class DeviceCache
{
public:
    // Thread safe; the reference stays valid for the life of the process.
    const DeviceFacts& facts(const HipRuntime& hip, int device);

private:
    std::mutex mutex_;
    std::map<int, std::unique_ptr<DeviceFacts>> facts_;
};

int device_count(const HipRuntime& hip);

} // namespace flash_attn_rocm
