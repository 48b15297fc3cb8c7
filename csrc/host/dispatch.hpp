// Chooses the kernels for a request, and their grids: pure functions of the request and the manifest.
#pragma once

#include <cstdint>
#include <string>

#include "bwd_request.hpp"
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

// CK's forward and backward kernels take ALiBi's distances modulo 2^16; those of split-KV do not.
inline constexpr std::int64_t kMaxWholeAlibiLength = 65'536;
bool alibi_fits_whole(const FwdRequest& request);

struct KernelChoice
{
    const KernelInfo* kernel = nullptr;
    std::string reason; // why there is none
};

// Smallest installed head dim that holds the request's, then a kernel without mask where none is needed (one with mask
// serves too), then the cheapest padding that is legal. Without a kernel the reason names the GPU, the feature and what
// is installed.
KernelChoice choose_fwd_kernel(const Manifest& manifest, const FwdRequest& request);

// The split-KV kernel for a request in group mode. `aligned`: k and v suit vector loads; without, only kernels with full
// padding serve, which load element by element, so that a cache is never copied.
KernelChoice choose_split_kernel(const Manifest& manifest, const FwdRequest& request, bool aligned);

// As for forward. One that adds dq's parts in order serves where the order does not matter, if there is no other.
KernelChoice choose_bwd_kernel(const Manifest& manifest, const BwdRequest& request);

// Our own kernels beside CK's (csrc/device) take every head dim up to their hdim_q. The smallest of this op and dtype
// that holds `hdim`, or null; and why there is none.
const KernelInfo* find_own_kernel(const Manifest& manifest, const char* op, const std::string& dtype, std::int64_t hdim);
std::string missing_own_kernel(const Manifest& manifest, const char* op, std::int64_t hdim);

struct Grid
{
    std::uint32_t x, y, z;
};

inline constexpr std::int64_t kMaxGridYZ = 65'535; // of a HIP launch

// Throws Error when a launch cannot have that many workgroups.
Grid make_grid(const KernelInfo& kernel, std::int64_t x, std::int64_t y, std::int64_t z);

// Workgroups of one launch over `batches` (up to kMaxGridYZ) batch entries. Throws Error above the hardware's limits.
Grid fwd_grid(const KernelInfo& kernel, const FwdRequest& request, std::int64_t batches);

} // namespace flash_attn_rocm
