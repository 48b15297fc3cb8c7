// The rule of head grouping, its switches, and the part of a request that one launch takes.
#include "head_grouping.hpp"

#include <algorithm>
#include <charconv>
#include <string>

#include "error.hpp"
#include "integers.hpp"
#include "text.hpp"

namespace flash_attn_rocm {
namespace {

constexpr const char* kSizeName   = "CK_TILE_FMHA_LLC_CACHE_MB";
constexpr std::int64_t kMebibyte   = 1 << 20;
constexpr std::int64_t kLargeCache = 64 * kMebibyte;

bool is_on(const char* name)
{
    const std::string value = environment(name);
    for(const char* off : {"", "0", "false", "FALSE", "off", "OFF", "no", "NO"})
    {
        if(value == off)
        {
            return false;
        }
    }
    return true;
}

} // namespace

CacheUse cache_use(std::int64_t cache_bytes)
{
    return cache_bytes >= kLargeCache ? CacheUse{0.85, 1.3} : CacheUse{1.0, 1.5};
}

std::int64_t kv_heads_per_launch(const GroupingProblem& problem)
{
    // With one query tile nothing is read twice.
    if(problem.cache_bytes <= 0 || problem.head_bytes <= 0 || problem.heads_k <= 1 || problem.query_tiles <= 1)
    {
        return problem.heads_k;
    }
    const CacheUse use      = cache_use(problem.cache_bytes);
    const double target     = static_cast<double>(problem.cache_bytes) * use.share;
    const double head_bytes = static_cast<double>(problem.head_bytes);
    if(static_cast<double>(problem.heads_k) * head_bytes < target * use.worthwhile)
    {
        return problem.heads_k;
    }
    const auto fitting = static_cast<std::int64_t>(target / head_bytes);
    return std::clamp(fitting, ceil_div(problem.heads_k, kMaxHeadGroups), problem.heads_k);
}

GroupingSwitches read_grouping_switches()
{
    GroupingSwitches switches{is_on("CK_TILE_FMHA_DISABLE_HEAD_GROUPING"), is_on("CK_TILE_FMHA_HEAD_GROUP_LOG"), {}};
    const std::string size = environment(kSizeName);
    if(size.empty())
    {
        return switches;
    }
    constexpr std::int64_t most = 1 << 20;
    std::int64_t mebibytes      = 0;
    const char* end             = size.data() + size.size();
    const auto [stop, status]   = std::from_chars(size.data(), end, mebibytes);
    if(status != std::errc() || stop != end || mebibytes < 0 || mebibytes > most)
    {
        fail(kSizeName, " is \"", size, "\"; allowed: a whole number of MiB from 0 (no head grouping) to ", most);
    }
    switches.cache_bytes = mebibytes * kMebibyte;
    return switches;
}

CacheSize choose_cache(const GroupingSwitches& switches, const CacheSize& known)
{
    return switches.cache_bytes ? CacheSize{*switches.cache_bytes, kSizeName} : known;
}

FwdRequest slice_heads(const FwdRequest& request, std::int64_t first, std::int64_t count)
{
    const std::int64_t ratio = request.heads_q / request.heads_k;
    FwdRequest part          = request;
    part.heads_q             = count;
    part.heads_k             = count / ratio;
    part.q.data              = advance(request.q.data, first * request.q.head_stride, kElementBytes);
    part.out.data            = advance(request.out.data, first * request.out.head_stride, kElementBytes);
    part.k.data              = advance(request.k.data, first / ratio * request.k.head_stride, kElementBytes);
    part.v.data              = advance(request.v.data, first / ratio * request.v.head_stride, kElementBytes);
    part.lse                 = static_cast<char*>(request.lse) + first * request.lse_head_stride * kFloatBytes;
    part.alibi_slopes        = advance(request.alibi_slopes, first, kFloatBytes);
    return part;
}

} // namespace flash_attn_rocm
