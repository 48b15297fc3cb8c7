// Chooses the kernel for a request, and its grid: pure functions of the request and the manifest.
#pragma once

#include <cstdint>
#include <string>

#include "fwd_request.hpp"
#include "manifest.hpp"

namespace flash_attn_rocm {

struct Window
{
    std::int64_t left;  // -1: unbounded
    std::int64_t right; // -1: unbounded

    bool bounded() const { return left >= 0 || right >= 0; }
};

// The request's window with bounds that hide nothing replaced by -1.
Window clamp_window(const FwdRequest& request);

struct FwdChoice
{
    const KernelInfo* kernel = nullptr;
    std::string reason; // why there is none
};

// Smallest installed head dim that holds the request's, cheapest padding that is legal. Without a kernel the reason
// names the GPU, the feature and what is installed.
FwdChoice choose_fwd_kernel(const Manifest& manifest, const FwdRequest& request);

struct Grid
{
    std::uint32_t x, y, z;
};

// Workgroups of one launch over `batches` batch entries. Throws Error above the hardware's limits.
Grid fwd_grid(const KernelInfo& kernel, const FwdRequest& request, std::int64_t batches);

} // namespace flash_attn_rocm
