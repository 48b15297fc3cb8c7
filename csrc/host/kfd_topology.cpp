// Reads the driver's topology files: lines of a name and a number.
#include "kfd_topology.hpp"

#include <algorithm>
#include <fstream>
#include <map>

namespace flash_attn_rocm {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kKibibyte  = 1024;
constexpr std::int64_t kSmallest  = 32 * kKibibyte; // less is no last-level cache
constexpr std::int64_t kLastLevel = 3;

using Properties = std::map<std::string, std::int64_t>;

Properties read_properties(const fs::path& directory)
{
    Properties found;
    std::ifstream file(directory / "properties");
    std::string name;
    std::string value;
    while(file >> name >> value)
    {
        try
        {
            found[name] = std::stoll(value);
        }
        catch(const std::exception&) // not a number, or one of 64 bits: nothing that is looked for
        {
            continue;
        }
    }
    return found;
}

std::int64_t value_of(const Properties& properties, const char* name)
{
    const auto found = properties.find(name);
    return found == properties.end() ? -1 : found->second;
}

// The driver's number for "gfx1201": major 12, minor 0, stepping 1 as decimal digits 120001; "gfx90a" is 90010.
std::int64_t target_version(const std::string& gfx)
{
    const std::string digits = gfx.substr(std::min<std::size_t>(3, gfx.size()));
    if(digits.size() < 3)
    {
        return -1;
    }
    try
    {
        const std::size_t split = digits.size() - 2;
        const auto hexadecimal  = [&](std::size_t at) { return std::stoll(digits.substr(at, 1), nullptr, 16); };
        return std::stoll(digits.substr(0, split)) * 10'000 + hexadecimal(split) * 100 + hexadecimal(split + 1);
    }
    catch(const std::exception&)
    {
        return -1;
    }
}

std::int64_t largest_cache(const fs::path& caches)
{
    std::int64_t largest = 0;
    std::error_code error;
    for(fs::directory_iterator cache(caches, error), end; cache != end; cache.increment(error))
    {
        const Properties properties = read_properties(cache->path());
        if(value_of(properties, "level") == kLastLevel)
        {
            largest = std::max(largest, value_of(properties, "size") * kKibibyte);
        }
    }
    return largest >= kSmallest ? largest : 0;
}

} // namespace

std::int64_t kfd_cache_bytes(const fs::path& nodes, const PciAddress& address, const std::string& gfx)
{
    const std::int64_t location = address.bus << 8 | address.device << 3;
    std::error_code error;
    for(fs::directory_iterator node(nodes, error), end; node != end; node.increment(error))
    {
        const Properties properties = read_properties(node->path());
        // Nodes of CPUs have caches too, and location 0.
        if(value_of(properties, "gfx_target_version") == target_version(gfx) &&
           value_of(properties, "location_id") == location && value_of(properties, "domain") == address.domain)
        {
            return largest_cache(node->path() / "caches");
        }
    }
    return 0;
}

} // namespace flash_attn_rocm
