// Chooses kernels of every op from what is installed, says why there is none, and checks grids.
#include "dispatch.hpp"

#include <algorithm>
#include <set>
#include <tuple>

#include "error.hpp"
#include "integers.hpp"

namespace flash_attn_rocm {
namespace {

constexpr std::int64_t kMaxGridX = 2'147'483'647;

bool padding_fits(const KernelInfo& kernel, const FwdRequest& request)
{
    const bool exact_hdim = request.hdim == kernel.hdim_q && request.hdim == kernel.hdim_v;
    switch(kernel.padding)
    {
    case Padding::none:
        return request.mode == Mode::batch && exact_hdim && request.seqlen_q % kernel.tile_m == 0 && request.seqlen_k % kernel.tile_n == 0;
    case Padding::seqlen: return exact_hdim;
    case Padding::full: return request.hdim <= kernel.hdim_q && request.hdim <= kernel.hdim_v;
    }
    return false;
}

template <class Values>
std::string list(const Values& values)
{
    std::string text;
    for(const auto& value : values)
    {
        text += concat(text.empty() ? "" : ", ", value);
    }
    return text.empty() ? "none" : text;
}

std::string describe_features(const FwdRequest& request, bool mask)
{
    std::string text = mask ? "a causal or window mask" : "no mask";
    text += request.alibi_slopes != nullptr ? ", ALiBi" : "";
    text += request.softcap > 0 ? ", softcap" : "";
    text += request.dropout.p > 0 ? ", dropout" : "";
    text += request.mode == Mode::group ? ", sequences of different lengths" : "";
    return text;
}

const char* mode_name(Mode mode) { return mode == Mode::batch ? "batch" : "group"; }

// What the installed kernels of one op and mode offer, each feature on its own.
struct Offer
{
    std::set<std::string> dtypes;
    std::set<std::int64_t> hdims;
    bool softcap = false;
    bool dropout = false;
    bool alibi   = false;
};

Offer find_offer(const Manifest& manifest, const char* op, Mode mode)
{
    Offer offer;
    for(const KernelInfo& kernel : manifest.kernels)
    {
        if(kernel.op == op && kernel.mode == mode_name(mode))
        {
            offer.dtypes.insert(kernel.dtype);
            offer.hdims.insert(kernel.hdim_q);
            offer.softcap |= kernel.softcap;
            offer.dropout |= kernel.dropout;
            offer.alibi |= kernel.bias == "alibi";
        }
    }
    return offer;
}

// What to do where the installed profile lacks a kernel.
std::string fuller_profile(const Manifest& manifest)
{
    return concat(". Install a fuller flash-attn-rocm-kernels-", manifest.gfx, ", which `./pixiw run build --arch ",
                  manifest.gfx, " --profile full` builds (inference: without dropout and backward), or set ",
                  "FLASH_ATTN_ROCM_BACKEND=sdpa");
}

// Why nothing fits: the first of dtype, feature and head dim that no installed kernel offers.
std::string explain(const Manifest& manifest, const char* op, const FwdRequest& request, bool mask)
{
    const Offer offer      = find_offer(manifest, op, request.mode);
    const std::string have = concat("the installed kernels for ", manifest.gfx, " (profile ", manifest.profile, ") ");
    const std::string remedy = fuller_profile(manifest);
    if(offer.dtypes.empty())
    {
        return concat(have, "have none for ", describe_features(request, mask), " (", op, ")", remedy);
    }
    if(request.softcap > 0 && !offer.softcap)
    {
        return concat("softcap is ", request.softcap, ", but ", have, "do not implement softcap", remedy);
    }
    if(request.dropout.p > 0 && !offer.dropout)
    {
        return concat("dropout_p is ", request.dropout.p, ", but ", have, "do not implement dropout", remedy);
    }
    if(request.alibi_slopes != nullptr && !offer.alibi)
    {
        return concat("alibi_slopes are given, but ", have, "do not implement ALiBi", remedy);
    }
    if(offer.dtypes.count(request.dtype) == 0)
    {
        return concat("dtype is ", request.dtype, "; ", have, "have dtypes: ", list(offer.dtypes), remedy);
    }
    if(request.hdim > *offer.hdims.rbegin())
    {
        return concat("head dim is ", request.hdim, "; ", have, "have head dims: ", list(offer.hdims), remedy);
    }
    return concat("no kernel combines ", request.dtype, ", head dim ", request.hdim, ", ",
                  describe_features(request, mask), " among ", have, "(head dims: ", list(offer.hdims), ")", remedy);
}

// Less is better.
auto base_cost(const KernelInfo& kernel) { return std::tuple(kernel.hdim_q, kernel.mask, kernel.padding); }

// The kernel of this op with the request's features and padding for which `fits` is true and `cost` least; or null.
template <class Fits, class Cost>
const KernelInfo* find_kernel(
    const Manifest& manifest, const char* op, const FwdRequest& request, bool mask, const Fits& fits, const Cost& cost)
{
    const FeatureCode wanted = feature_code({op, request.dtype, request.mode == Mode::group,
                                             request.alibi_slopes != nullptr, request.softcap > 0, request.dropout.p > 0});
    const KernelInfo* chosen = nullptr;
    for(const std::size_t index : manifest.with_features(wanted))
    {
        const KernelInfo& kernel = manifest.kernels[index];
        if((kernel.mask || !mask) && padding_fits(kernel, request) && fits(kernel) &&
           (chosen == nullptr || cost(kernel) < cost(*chosen)))
        {
            chosen = &kernel;
        }
    }
    return chosen;
}

std::string alibi_too_long(const FwdRequest& request)
{
    return concat("alibi_slopes with sequences of ", request.seqlen_q, " and ", request.seqlen_k,
                  ": CK's kernels compute ALiBi's distances in 16 bits, right for lengths up to ", kMaxWholeAlibiLength,
                  ". Set FLASH_ATTN_ROCM_BACKEND=sdpa");
}

} // namespace

Window clamp_window(const FwdRequest& request)
{
    // The last query is aligned with the last key and sees the farthest to the left; the first query is the one that
    // a right bound hides most from: it is aligned with key seqlen_k - seqlen_q.
    const bool left_hides  = request.window_left >= 0 && request.window_left < request.seqlen_k - 1;
    const bool right_hides = request.window_right >= 0 && request.window_right < request.seqlen_q - 1;
    return {left_hides ? request.window_left : -1, right_hides ? request.window_right : -1};
}

bool alibi_fits_whole(const FwdRequest& request)
{
    return request.alibi_slopes == nullptr || std::max(request.seqlen_q, request.seqlen_k) <= kMaxWholeAlibiLength;
}

KernelChoice choose_fwd_kernel(const Manifest& manifest, const FwdRequest& request)
{
    if(!alibi_fits_whole(request))
    {
        return {nullptr, alibi_too_long(request)};
    }
    const bool mask          = clamp_window(request).bounded();
    const KernelInfo* chosen = find_kernel(
        manifest, "fmha_fwd", request, mask, [](const KernelInfo&) { return true; }, base_cost);
    return {chosen, chosen != nullptr ? std::string() : explain(manifest, "fmha_fwd", request, mask)};
}

KernelChoice choose_split_kernel(const Manifest& manifest, const FwdRequest& request, bool aligned)
{
    const bool mask  = clamp_window(request).bounded();
    const bool paged = request.pages.table != nullptr;
    const auto fits  = [&](const KernelInfo& kernel) {
        const bool pages_fit = paged ? kernel.page > 0 && request.pages.size % kernel.page == 0 : kernel.page == 0;
        return pages_fit && (aligned || kernel.padding == Padding::full);
    };
    // Of the kernels for pages, the one with the longest steps.
    const auto cost = [](const KernelInfo& kernel) { return std::tuple(base_cost(kernel), -kernel.page); };
    const KernelInfo* chosen = find_kernel(manifest, "fmha_fwd_splitkv", request, mask, fits, cost);
    if(chosen != nullptr)
    {
        return {chosen, ""};
    }
    const std::string pages = paged ? concat(" with pages of ", request.pages.size, " rows") : "";
    return {nullptr, explain(manifest, "fmha_fwd_splitkv", request, mask) + pages};
}

KernelChoice choose_bwd_kernel(const Manifest& manifest, const BwdRequest& request)
{
    const FwdRequest& forward = request.forward;
    if(!alibi_fits_whole(forward))
    {
        return {nullptr, "backward: " + alibi_too_long(forward)};
    }
    const bool mask           = clamp_window(forward).bounded();
    const auto fits = [&](const KernelInfo& kernel) { return kernel.deterministic || !request.deterministic; };
    const auto cost = [](const KernelInfo& kernel) { return std::tuple(kernel.deterministic, base_cost(kernel)); };
    const KernelInfo* chosen = find_kernel(manifest, "fmha_bwd", forward, mask, fits, cost);
    if(chosen != nullptr)
    {
        return {chosen, std::string()};
    }
    const char* order = request.deterministic ? "deterministic backward: " : "backward: ";
    return {nullptr, order + explain(manifest, "fmha_bwd", forward, mask)};
}

const KernelInfo* find_own_kernel(const Manifest& manifest, const char* op, const std::string& dtype, std::int64_t hdim)
{
    const KernelInfo* chosen = nullptr;
    for(const std::size_t index : manifest.with_features(feature_code({op, dtype})))
    {
        const KernelInfo& kernel = manifest.kernels[index];
        if(hdim <= kernel.hdim_q && (chosen == nullptr || kernel.hdim_q < chosen->hdim_q))
        {
            chosen = &kernel;
        }
    }
    return chosen;
}

std::string missing_own_kernel(const Manifest& manifest, const char* op, std::int64_t hdim)
{
    return concat("the installed kernels for ", manifest.gfx, " (profile ", manifest.profile, ") have no ", op,
                  " for head dim ", hdim, fuller_profile(manifest));
}

Grid make_grid(const KernelInfo& kernel, std::int64_t x, std::int64_t y, std::int64_t z)
{
    if(x * std::int64_t{kernel.block_threads} > kMaxGridX || y > kMaxGridYZ || z > kMaxGridYZ)
    {
        fail(kernel.name, ": (", x, ", ", y, ", ", z, ") workgroups are more than one launch can have (",
             kMaxGridX / kernel.block_threads, ", ", kMaxGridYZ, ", ", kMaxGridYZ, "). Split the call");
    }
    return {static_cast<std::uint32_t>(x), static_cast<std::uint32_t>(y), static_cast<std::uint32_t>(z)};
}

Grid fwd_grid(const KernelInfo& kernel, const FwdRequest& request, std::int64_t batches)
{
    const std::int64_t tiles = ceil_div(request.seqlen_q, kernel.tile_m) * ceil_div(request.hdim, kernel.hdim_v);
    if(tiles > kMaxGridYZ)
    {
        fail("seqlen_q is ", request.seqlen_q, ": ", tiles, " tiles of ", kernel.tile_m,
             " rows are more than one launch can have (", kMaxGridYZ, "). Split the queries into chunks");
    }
    if(request.heads_q * std::int64_t{kernel.block_threads} > kMaxGridX)
    {
        fail("nheads is ", request.heads_q, ", more than one launch can have");
    }
    const auto x = static_cast<std::uint32_t>(request.heads_q);
    const auto y = static_cast<std::uint32_t>(tiles);
    const auto z = static_cast<std::uint32_t>(batches);
    // CK's kernel takes its tile from z and its batch entry from y where it has an array of key lengths.
    return request.sequences.length_k != nullptr ? Grid{x, z, y} : Grid{x, y, z};
}

} // namespace flash_attn_rocm
