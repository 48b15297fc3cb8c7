// Reads device properties through the HIP runtime and keeps them.
#include "device_facts.hpp"

#include "error.hpp"

namespace flash_attn_rocm {

const DeviceFacts& DeviceCache::facts(const HipRuntime& hip, int device)
{
    const std::lock_guard lock(mutex_);
    std::unique_ptr<DeviceFacts>& entry = facts_[device];
    if(!entry)
    {
        HipDeviceProperties properties{};
        check_hip(hip,
                  hip.api.hipGetDevicePropertiesR0600(&properties, device),
                  concat("hipGetDeviceProperties of device ", device));
        const std::string arch = properties.gfx;
        entry                  = std::make_unique<DeviceFacts>(DeviceFacts{
            properties.name, arch.substr(0, arch.find(':')), properties.multiprocessors, properties.warp_size});
    }
    return *entry;
}

int device_count(const HipRuntime& hip)
{
    int count = 0;
    check_hip(hip, hip.api.hipGetDeviceCount(&count), "hipGetDeviceCount");
    return count;
}

} // namespace flash_attn_rocm
