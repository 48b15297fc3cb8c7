// Reads device properties through the HIP runtime and keeps them.
#include "device_facts.hpp"

#include "error.hpp"
#include "kfd_topology.hpp"

namespace flash_attn_rocm {

const DeviceFacts& DeviceCache::facts(const HipRuntime& hip, int device)
{
    const std::lock_guard lock(mutex_);
    std::unique_ptr<DeviceFacts>& entry = facts_[device];
    if(!entry)
    {
        entry = std::make_unique<DeviceFacts>(read_facts(hip, device));
    }
    return *entry;
}

void DeviceCache::set_cache(const std::string& gfx, CacheTableEntry entry)
{
    const std::lock_guard lock(mutex_);
    caches_[gfx] = entry;
}

DeviceFacts DeviceCache::read_facts(const HipRuntime& hip, int device)
{
    HipDeviceProperties properties{};
    check_hip(hip,
              hip.api.hipGetDevicePropertiesR0600(&properties, device),
              concat("hipGetDeviceProperties of device ", device));
    const std::string arch = properties.gfx;
    DeviceFacts facts;
    facts.name            = properties.name;
    facts.gfx             = arch.substr(0, arch.find(':'));
    facts.multiprocessors = properties.multiprocessors;
    facts.wave_size       = properties.warp_size;
    if(const auto entry = caches_.find(facts.gfx); entry != caches_.end())
    {
        facts.cache         = {entry->second.bytes, "table"};
        facts.head_grouping = entry->second.head_grouping;
    }
    // An emulated GPU is none of this machine's.
    const PciAddress address{properties.pci_domain, properties.pci_bus, properties.pci_device};
    const std::int64_t driver = hip.emulated() ? 0 : kfd_cache_bytes(kKfdNodes, address, facts.gfx);
    if(driver > 0)
    {
        facts.cache = {driver, "driver"};
    }
    return facts;
}

int device_count(const HipRuntime& hip)
{
    int count = 0;
    check_hip(hip, hip.api.hipGetDeviceCount(&count), "hipGetDeviceCount");
    return count;
}

} // namespace flash_attn_rocm
