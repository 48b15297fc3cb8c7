// Chooses the forward kernel for a request from what is installed.
#include "dispatch.hpp"

#include <algorithm>
#include <set>

#include "error.hpp"

namespace flash_attn_rocm {
namespace {

constexpr std::int64_t kMaxGridY = 65'535; // of a HIP launch; z is bounded by the caller
constexpr std::int64_t kMaxGridX = 2'147'483'647;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

bool padding_fits(const KernelInfo& kernel, const FwdRequest& request)
{
    const bool exact_hdim = request.hdim == kernel.hdim_q && request.hdim == kernel.hdim_v;
    switch(kernel.padding)
    {
    case Padding::none:
        return exact_hdim && request.seqlen_q % kernel.tile_m == 0 && request.seqlen_k % kernel.tile_n == 0;
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
    text += request.dropout_p > 0 ? ", dropout" : "";
    return text;
}

// Why nothing fits: the first of dtype, feature and head dim that no installed kernel offers.
std::string explain(const Manifest& manifest, const FwdRequest& request, bool mask)
{
    std::set<std::string> dtypes;
    std::set<std::int64_t> hdims;
    bool any_softcap = false;
    bool any_dropout = false;
    bool any_alibi   = false;
    for(const KernelInfo& kernel : manifest.kernels)
    {
        if(kernel.op == "fmha_fwd" && kernel.mode == "batch")
        {
            dtypes.insert(kernel.dtype);
            hdims.insert(kernel.hdim_q);
            any_softcap |= kernel.softcap;
            any_dropout |= kernel.dropout;
            any_alibi |= kernel.bias == "alibi";
        }
    }
    const std::string have = concat("the installed kernels for ", manifest.gfx, " (profile ", manifest.profile, ") ");
    const std::string remedy =
        concat(". Install a profile that has it (package flash-attn-rocm-kernels-", manifest.gfx,
               ") or set FLASH_ATTN_ROCM_BACKEND=sdpa");
    if(request.softcap > 0 && !any_softcap)
    {
        return concat("softcap is ", request.softcap, ", but ", have, "do not implement softcap", remedy);
    }
    if(request.dropout_p > 0 && !any_dropout)
    {
        return concat("dropout_p is ", request.dropout_p, ", but ", have, "do not implement dropout", remedy);
    }
    if(request.alibi_slopes != nullptr && !any_alibi)
    {
        return concat("alibi_slopes are given, but ", have, "do not implement ALiBi", remedy);
    }
    if(dtypes.count(request.dtype) == 0)
    {
        return concat("dtype is ", request.dtype, "; ", have, "have dtypes: ", list(dtypes), remedy);
    }
    if(request.hdim > *hdims.rbegin())
    {
        return concat("head dim is ", request.hdim, "; ", have, "have head dims: ", list(hdims), remedy);
    }
    return concat("no kernel combines ", request.dtype, ", head dim ", request.hdim, ", ",
                  describe_features(request, mask), " among ", have, "(head dims: ", list(hdims), ")", remedy);
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

FwdChoice choose_fwd_kernel(const Manifest& manifest, const FwdRequest& request)
{
    const bool mask          = clamp_window(request).bounded();
    const std::string bias   = request.alibi_slopes != nullptr ? "alibi" : "none";
    const KernelInfo* chosen = nullptr;
    for(const KernelInfo& kernel : manifest.kernels)
    {
        const bool fits = kernel.op == "fmha_fwd" && kernel.mode == "batch" && kernel.dtype == request.dtype &&
                          kernel.mask == mask && kernel.bias == bias && kernel.softcap == (request.softcap > 0) &&
                          kernel.dropout == (request.dropout_p > 0) && padding_fits(kernel, request);
        if(!fits)
        {
            continue;
        }
        // Smaller head dim first, then the padding that does least.
        if(chosen == nullptr || kernel.hdim_q < chosen->hdim_q ||
           (kernel.hdim_q == chosen->hdim_q && kernel.padding < chosen->padding))
        {
            chosen = &kernel;
        }
    }
    return {chosen, chosen != nullptr ? std::string() : explain(manifest, request, mask)};
}

Grid fwd_grid(const KernelInfo& kernel, const FwdRequest& request, std::int64_t batches)
{
    const std::int64_t tiles = ceil_div(request.seqlen_q, kernel.tile_m) * ceil_div(request.hdim, kernel.hdim_v);
    if(tiles > kMaxGridY)
    {
        fail("seqlen_q is ", request.seqlen_q, ": ", tiles, " tiles of ", kernel.tile_m,
             " rows are more than one launch can have (", kMaxGridY, "). Split the queries into chunks");
    }
    if(request.heads_q * std::int64_t{kernel.block_threads} > kMaxGridX)
    {
        fail("nheads is ", request.heads_q, ", more than one launch can have");
    }
    return {static_cast<std::uint32_t>(request.heads_q),
            static_cast<std::uint32_t>(tiles),
            static_cast<std::uint32_t>(batches)};
}

} // namespace flash_attn_rocm
