// Head grouping: how many heads one launch takes, so that their keys and values stay in the last-level cache while all
// query tiles read them, the switches that users have over it, and a request's part for one launch. A launch's workgroups
// run head by head in turn: with all heads in one launch, the keys and values of all are in flight at once.
#pragma once

#include <cstdint>
#include <optional>

#include "fwd_request.hpp"

namespace flash_attn_rocm {

struct GroupingProblem
{
    std::int64_t heads_k     = 0; // heads of keys and values; each serves heads_q / heads_k query heads
    std::int64_t head_bytes  = 0; // keys and values of one head
    std::int64_t query_tiles = 0; // workgroups that read them
    std::int64_t cache_bytes = 0; // last-level cache; 0: unknown or none
};

// The most launches that a call is cut into.
inline constexpr std::int64_t kMaxHeadGroups = 8;

// Of the last-level cache: the share that keys and values may fill, and how many times that share all heads together
// must have for more launches to pay. A large cache keeps some for queries and outputs, and more of it is lost where
// heads do not fit. Figures of ROCm/rocm-libraries pull request 5018, measured there.
struct CacheUse
{
    double share;
    double worthwhile;
};
CacheUse cache_use(std::int64_t cache_bytes);

// Heads of keys and values that one launch takes: heads_k when all go together. A pure function.
//
// Counts heads of keys and values, where the pull request above counts query heads: query heads that share keys read the
// same bytes, so that counting them would cut grouped-query calls into more launches than the cache asks for.
std::int64_t kv_heads_per_launch(const GroupingProblem& problem);

// The switches that flash_attn's CK backend has: CK_TILE_FMHA_DISABLE_HEAD_GROUPING, CK_TILE_FMHA_HEAD_GROUP_LOG,
// CK_TILE_FMHA_LLC_CACHE_MB. Throws Error where the last one is no number.
struct GroupingSwitches
{
    bool disabled = false;
    bool log      = false;
    std::optional<std::int64_t> cache_bytes;
};
GroupingSwitches read_grouping_switches();

// Where the size of a device's last-level cache comes from.
struct CacheSize
{
    std::int64_t bytes = 0;
    const char* source = "none";
};

// The switch's size where it is set, else what is known.
CacheSize choose_cache(const GroupingSwitches& switches, const CacheSize& known);

// The request for `count` query heads from `first` on, a multiple of the heads that share keys. Without dropout only:
// the kernels number random values from the first head of a launch.
FwdRequest slice_heads(const FwdRequest& request, std::int64_t first, std::int64_t count);

} // namespace flash_attn_rocm
