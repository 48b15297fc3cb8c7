// Forward attention over parts of the keys: several workgroups share the keys of one query tile, and a second kernel
// joins their results. For few queries and many keys, and for keys in pages, which only these kernels read.
#pragma once

#include <optional>

#include "fwd_request.hpp"
#include "queue.hpp"

namespace flash_attn_rocm {

inline constexpr std::int64_t kMaxSplits = 128;

// What the choice of the number of parts depends on.
struct SplitProblem
{
    std::int64_t batch           = 0;
    std::int64_t heads           = 0;
    std::int64_t seqlen_q        = 0;
    std::int64_t seqlen_k        = 0; // of the longest sequence
    std::int64_t tile_m          = 0; // query rows of one workgroup
    std::int64_t multiprocessors = 0;
};

// Throws Error unless it is 0 (chosen for the GPU) to kMaxSplits.
void check_num_splits(std::int64_t num_splits);

// How many parts to cut the keys into, 1 to kMaxSplits: as many as fill the GPU, none shorter than
// kMinKeysOfSplit keys. A pure function.
std::int64_t choose_num_splits(const SplitProblem& problem);

inline constexpr std::int64_t kMinKeysOfSplit = 256;
// Workgroups that keep one multiprocessor busy: on RDNA a multiprocessor is two compute units, and loads of keys are
// hidden by a second workgroup on each.
inline constexpr std::int64_t kWorkgroupsOfMultiprocessor = 4;

struct SplitPlan
{
    const Manifest* manifest  = nullptr;
    const KernelInfo* kernel  = nullptr;
    const KernelInfo* combine = nullptr;
    std::int64_t splits       = 1;
};

// The kernels and the number of parts; num_splits 0 leaves it to choose_num_splits. `aligned`: k and v suit vector
// loads. Throws Error, marked kNoKernel when nothing installed covers the request.
SplitPlan plan_split(
    Library& library, int device, const FwdRequest& request, bool aligned, std::int64_t num_splits);

// The same where the GPU is to decide and the kernels may be missing: nullopt without them.
std::optional<SplitPlan> find_split(Library& library, int device, const FwdRequest& request, bool aligned);

// Where the parts' results go: float32 (heads, splits, rows of q) and (heads, splits, rows of q, head dim).
struct SplitBuffers
{
    void* lse_acc     = nullptr;
    void* o_acc       = nullptr;
    std::int64_t rows = 0;
};

// Where the joined results go. With start_q rows of all sequences lie one after the other; else every batch entry has
// seqlen_q rows.
struct SplitOutput
{
    TensorView out;
    void* lse                     = nullptr;
    std::int64_t lse_head_stride  = 0;
    std::int64_t lse_batch_stride = 0;
    const void* start_q           = nullptr;
};

// Launches both kernels.
void launch_split(const Queue& queue,
                  const SplitPlan& plan,
                  const FwdRequest& request,
                  const SplitBuffers& buffers,
                  const SplitOutput& output);

} // namespace flash_attn_rocm
