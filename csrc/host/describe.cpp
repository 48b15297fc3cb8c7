// Reports of the library's state as JSON.
#include "describe.hpp"

#include <cmath>

#include <nlohmann/json.hpp>

#include "error.hpp"
#include "text.hpp"

namespace flash_attn_rocm {
namespace {

using Json = nlohmann::json;

// Without dropout, batch and varlen forward launch as many heads of keys and values at once as fit `kv_bytes_per_launch`
// where all together have at least `kv_bytes_from` bytes.
Json describe_grouping(Library& library, const DeviceFacts& facts)
{
    const GroupingSwitches switches = library.grouping_switches();
    const CacheSize cache           = choose_cache(switches, facts.cache);
    const char* off                 = !facts.head_grouping ? "not tried on this GPU"
                                      : switches.disabled  ? "CK_TILE_FMHA_DISABLE_HEAD_GROUPING"
                                      : cache.bytes == 0   ? "no last-level cache is known"
                                                           : nullptr;
    Json row = {{"cache_bytes", cache.bytes}, {"cache_source", cache.source}, {"active", off == nullptr}};
    if(off != nullptr)
    {
        row["reason"] = off;
        return row;
    }
    const CacheUse use         = cache_use(cache.bytes);
    const double target        = static_cast<double>(cache.bytes) * use.share;
    row["kv_bytes_per_launch"] = static_cast<std::int64_t>(target);
    row["kv_bytes_from"]       = static_cast<std::int64_t>(std::ceil(target * use.worthwhile));
    row["max_launches"]        = kMaxHeadGroups;
    return row;
}

Json describe_device(Library& library, const HipRuntime& hip, int device)
{
    Json row = {{"index", device}};
    try
    {
        const DeviceFacts& facts = library.devices().facts(hip, device);
        row["name"]              = printable(facts.name);
        row["gfx"]               = printable(facts.gfx);
        row["multiprocessors"]   = facts.multiprocessors;
        row["wave_size"]         = facts.wave_size;
        row["head_grouping"]     = describe_grouping(library, facts);
        const Manifest& manifest = library.manifest(facts.gfx);
        row["kernels"]           = printable(text_of(manifest.path));
        row["kernel_count"]      = manifest.kernels.size();
        row["profile"]           = manifest.profile;
    }
    catch(const Error& error)
    {
        row["error"] = error.what();
    }
    return row;
}

} // namespace

std::string describe(Library& library)
{
    Json report = {{"hip", Json::object()}, {"devices", Json::array()}, {"kernel_paths", Json::array()}};
    for(const std::filesystem::path& path : library.kernel_paths())
    {
        report["kernel_paths"].push_back(printable(text_of(path)));
    }
    try
    {
        const HipRuntime& hip = library.hip();
        report["hip"]         = {
            {"path", printable(hip.path)}, {"version", format_hip_version(hip.version)}, {"emulated", hip.emulated()}};
        const int count = device_count(hip);
        for(int device = 0; device < count; ++device)
        {
            report["devices"].push_back(describe_device(library, hip, device));
        }
    }
    catch(const Error& error)
    {
        report["hip"]["error"] = error.what();
    }
    return report.dump();
}

std::string describe_launches(Library& library) { return Json(library.modules().launch_counts()).dump(); }

} // namespace flash_attn_rocm
