// Runs a forward request: chooses the kernel, fills its arguments and launches it, in parts if the batch is large.
#include "launch.hpp"

#include <algorithm>
#include <cstdio>

#include "checks.hpp"
#include "dispatch.hpp"
#include "error.hpp"
#include "head_grouping.hpp"
#include "integers.hpp"
#include "kernel_args.hpp"
#include "text.hpp"

namespace flash_attn_rocm {
namespace {

// Batch strides are 32-bit in the kernels; where one does not fit, every batch entry is launched from its own address.
std::int64_t batches_per_launch(const FwdRequest& request)
{
    const std::int64_t largest = std::max({request.q.batch_stride,
                                           request.k.batch_stride,
                                           request.v.batch_stride,
                                           request.out.batch_stride,
                                           request.lse_batch_stride,
                                           request.dropout.map_batch_stride});
    return largest > kInt32Max ? 1 : std::min(request.batch, kMaxGridYZ);
}

// The pointers of a launch that begins at batch entry `first`.
void set_pointers(ArgValues& values, const FwdRequest& request, std::int64_t first)
{
    const auto shifted = [first](const TensorView& view) {
        return advance(view.data, first * view.batch_stride, kElementBytes);
    };
    values.set(Arg::q_ptr, shifted(request.q));
    values.set(Arg::k_ptr, shifted(request.k));
    values.set(Arg::v_ptr, shifted(request.v));
    values.set(Arg::o_ptr, shifted(request.out));
    values.set(Arg::lse_ptr, advance(request.lse, first * request.lse_batch_stride, kFloatBytes));
    values.set(Arg::rand_val_ptr, advance(request.dropout.map, first * request.dropout.map_batch_stride, 1));
    values.set(Arg::alibi_slope_ptr, advance(request.alibi_slopes, first * request.alibi_batch_stride, kFloatBytes));
    values.set(Arg::seqstart_q_ptr, advance(request.sequences.start_q, first, kInt32Bytes));
    values.set(Arg::seqstart_k_ptr, advance(request.sequences.start_k, first, kInt32Bytes));
    values.set(Arg::seqlen_k_ptr, advance(request.sequences.length_k, first, kInt32Bytes));
}

} // namespace

const Manifest& usable_manifest(Library& library, int device)
{
    const DeviceFacts& facts = library.devices().facts(library.hip(), device);
    const Manifest& manifest = library.manifest(facts.gfx);
    if(manifest.wave_size != facts.wave_size)
    {
        fail(text_of(manifest.path), ": its kernels are for waves of ", manifest.wave_size, ", but device ", device,
             " (", facts.gfx, ") has waves of ", facts.wave_size, ". Reinstall: ", reinstall_command(facts.gfx));
    }
    return manifest;
}

void launch_kernel(const Queue& queue, const InstalledKernel& chosen, const ArgValues& values, Grid grid)
{
    const HipRuntime& hip            = queue.library.hip();
    const KernelInfo& kernel         = chosen.kernel;
    std::vector<std::byte> arguments = pack_args(kernel, values);
    std::size_t bytes                = arguments.size();
    ModuleCache::Function& function  = queue.library.modules().function(hip, queue.device, chosen.manifest, kernel);
    void* extra[]                    = {
        kLaunchParamBufferPointer, arguments.data(), kLaunchParamBufferSize, &bytes, kLaunchParamEnd};
    const HipError status = hip.api.hipModuleLaunchKernel(
        function.handle, grid.x, grid.y, grid.z, kernel.block_threads, 1, 1, 0, queue.stream, nullptr, extra);
    if(status != kHipSuccess)
    {
        check_hip(hip,
                  status,
                  concat("launching ", kernel.name, " with grid (", grid.x, ", ", grid.y, ", ", grid.z, ")"));
    }
    ++function.launches;
}

InstalledKernel select_fwd_kernel(Library& library, int device, const FwdRequest& request)
{
    const Manifest& manifest  = usable_manifest(library, device);
    const KernelChoice choice = choose_fwd_kernel(manifest, request);
    if(choice.kernel == nullptr)
    {
        fail(kNoKernel, choice.reason);
    }
    return {manifest, *choice.kernel};
}

namespace {

// One launch for all heads of `request`, or several where the batch needs them.
void launch_heads(const Queue& queue, const InstalledKernel& chosen, const FwdRequest& request)
{
    ArgValues values = fwd_arg_values(request);
    const std::int64_t step = batches_per_launch(request);
    if(step < request.batch && request.dropout.p > 0)
    {
        // The kernels number random values from the first batch entry of a launch.
        fail("dropout with ", request.batch, " batch entries needs several launches (more than ", kMaxGridYZ,
             " entries, or a batch stride of 2^31 elements or more), which would repeat random numbers. Split the batch");
    }
    if(step == 1)
    {
        for(const Arg arg : {Arg::batch_stride_q, Arg::batch_stride_k, Arg::batch_stride_v, Arg::batch_stride_o,
                             Arg::batch_stride_lse, Arg::batch_stride_randval})
        {
            values.set(arg, std::int64_t{0});
        }
    }
    for(std::int64_t first = 0; first < request.batch; first += step)
    {
        set_pointers(values, request, first);
        const Grid grid = fwd_grid(chosen.kernel, request, std::min(step, request.batch - first));
        launch_kernel(queue, chosen, values, grid);
    }
}

// Query heads that one launch takes. With dropout all of them: the kernels number random values from the first head of a
// launch, and read the offset that would make up for it from device memory.
std::int64_t heads_per_launch(const Queue& queue, const KernelInfo& kernel, const FwdRequest& request)
{
    Library& library         = queue.library;
    const DeviceFacts& facts = library.devices().facts(library.hip(), queue.device);
    if(!facts.head_grouping || request.dropout.p > 0)
    {
        return request.heads_q;
    }
    const GroupingSwitches switches = library.grouping_switches();
    if(switches.disabled)
    {
        return request.heads_q;
    }
    const CacheSize cache = choose_cache(switches, facts.cache);
    // Workgroups run batch entry by batch entry, but where there is an array of key lengths tile by tile (fwd_grid), so
    // that keys of all batch entries are read by turns.
    const std::int64_t batches_in_flight = request.sequences.length_k != nullptr ? request.batch : 1;
    GroupingProblem problem;
    problem.heads_k     = request.heads_k;
    problem.head_bytes  = request.seqlen_k * request.hdim * 2 * kElementBytes * batches_in_flight;
    problem.query_tiles = (request.seqlen_q + kernel.tile_m - 1) / kernel.tile_m;
    problem.cache_bytes = cache.bytes;
    const std::int64_t heads = kv_heads_per_launch(problem) * (request.heads_q / request.heads_k);
    if(switches.log)
    {
        std::fprintf(stderr, "flash_attn_rocm: device %d: %lld of %lld heads a launch; keys and values have %lld bytes a "
                             "head, the last-level cache %lld (%s)\n",
                     queue.device, static_cast<long long>(heads), static_cast<long long>(request.heads_q),
                     static_cast<long long>(problem.head_bytes), static_cast<long long>(cache.bytes),
                     cache.source);
    }
    return heads;
}

} // namespace

void launch_fwd(const Queue& queue, const InstalledKernel& chosen, const FwdRequest& request)
{
    const std::int64_t heads = heads_per_launch(queue, chosen.kernel, request);
    if(heads >= request.heads_q)
    {
        launch_heads(queue, chosen, request);
        return;
    }
    for(std::int64_t first = 0; first < request.heads_q; first += heads)
    {
        const std::int64_t count = std::min(heads, request.heads_q - first);
        launch_heads(queue, chosen, slice_heads(request, first, count));
    }
}

} // namespace flash_attn_rocm
