// Registers byte ranges of host memory with the HIP runtime and releases them again.
#include "host_memory.hpp"

#include <algorithm>

#include "error.hpp"

namespace flash_attn_rocm {

std::vector<ByteRange> merge_ranges(std::vector<ByteRange> ranges)
{
    std::sort(ranges.begin(), ranges.end(), [](ByteRange a, ByteRange b) { return a.begin < b.begin; });
    std::vector<ByteRange> merged;
    for(const ByteRange range : ranges)
    {
        if(range.begin >= range.end)
        {
            continue;
        }
        if(!merged.empty() && range.begin <= merged.back().end)
        {
            merged.back().end = std::max(merged.back().end, range.end);
        }
        else
        {
            merged.push_back(range);
        }
    }
    return merged;
}

HostRegistration::HostRegistration(const HipRuntime& hip, std::vector<ByteRange> ranges) : hip_(hip)
{
    for(const ByteRange range : merge_ranges(std::move(ranges)))
    {
        auto* pointer         = reinterpret_cast<void*>(range.begin);
        const HipError status = hip.api.hipHostRegister(pointer, range.end - range.begin, kHostRegisterMapped);
        if(status != kHipSuccess)
        {
            release();
            check_hip(hip, status, concat("hipHostRegister of ", range.end - range.begin, " bytes of a CPU tensor"));
        }
        registered_.push_back(pointer);
    }
}

HostRegistration::~HostRegistration() { release(); }

void HostRegistration::release()
{
    for(void* pointer : registered_)
    {
        hip_.api.hipHostUnregister(pointer);
    }
    registered_.clear();
}

} // namespace flash_attn_rocm
