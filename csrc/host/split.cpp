// Plans and launches split-KV: the number of parts, the kernels, their arguments.
#include "split.hpp"

#include <algorithm>

#include "checks.hpp"
#include "dispatch.hpp"
#include "error.hpp"
#include "integers.hpp"
#include "kernel_args.hpp"
#include "launch.hpp"

namespace flash_attn_rocm {
namespace {

// Rounds of workgroups that the GPU needs, as a share of what they could hold: 1 when the last round is full.
double fullness(std::int64_t workgroups, std::int64_t slots)
{
    return static_cast<double>(workgroups) / static_cast<double>(ceil_div(workgroups, slots) * slots);
}

ArgValues split_arg_values(const FwdRequest& request, const SplitPlan& plan, const SplitBuffers& buffers)
{
    ArgValues values = fwd_arg_values(request);
    values.set(Arg::batch, request.batch);
    values.set(Arg::num_splits, plan.splits);
    values.set(Arg::lse_acc_ptr, static_cast<const void*>(buffers.lse_acc));
    values.set(Arg::o_acc_ptr, static_cast<const void*>(buffers.o_acc));
    values.set(Arg::stride_o_acc, request.hdim);
    values.set(Arg::split_stride_lse_acc, buffers.rows);
    values.set(Arg::split_stride_o_acc, buffers.rows * request.hdim);
    values.set(Arg::nhead_stride_lse_acc, plan.splits * buffers.rows);
    values.set(Arg::nhead_stride_o_acc, plan.splits * buffers.rows * request.hdim);
    values.set(Arg::block_table_ptr, request.pages.table);
    values.set(Arg::batch_stride_block_table, request.pages.table_stride);
    values.set(Arg::page_block_size, request.pages.size);
    values.set(Arg::is_gappy, std::int64_t{0});
    return values;
}

Grid split_grid(const SplitPlan& plan, const FwdRequest& request, std::int64_t batches)
{
    const std::int64_t tiles =
        ceil_div(request.seqlen_q, plan.kernel->tile_m) * ceil_div(request.hdim, plan.kernel->hdim_v) * plan.splits;
    return make_grid(*plan.kernel, tiles, request.heads_q, batches);
}

void launch_parts(const Queue& queue, const SplitPlan& plan, const FwdRequest& request, const SplitBuffers& buffers)
{
    ArgValues values = split_arg_values(request, plan, buffers);
    const auto ints  = [](const void* pointer, std::int64_t elements) { return advance(pointer, elements, kInt32Bytes); };
    for(std::int64_t first = 0; first < request.batch; first += kMaxGridYZ)
    {
        const std::int64_t batches = std::min(kMaxGridYZ, request.batch - first);
        values.set(Arg::q_ptr, request.q.data);
        values.set(Arg::k_ptr, request.k.data);
        values.set(Arg::v_ptr, request.v.data);
        values.set(Arg::seqstart_q_ptr, ints(request.sequences.start_q, first));
        values.set(Arg::seqstart_k_ptr, ints(request.sequences.start_k, first));
        values.set(Arg::seqlen_k_ptr, ints(request.sequences.length_k, first));
        values.set(Arg::block_table_ptr, ints(request.pages.table, first * request.pages.table_stride));
        values.set(Arg::alibi_slope_ptr, advance(request.alibi_slopes, first * request.alibi_batch_stride, kFloatBytes));
        launch_kernel(queue, {*plan.manifest, *plan.kernel}, values, split_grid(plan, request, batches));
    }
}

void launch_combine(const Queue& queue,
                    const SplitPlan& plan,
                    const FwdRequest& request,
                    const SplitBuffers& buffers,
                    const SplitOutput& output)
{
    const bool group     = output.start_q != nullptr;
    const std::int64_t d = request.hdim;
    ArgValues values;
    values.set(Arg::lse_acc_ptr, static_cast<const void*>(buffers.lse_acc));
    values.set(Arg::o_acc_ptr, static_cast<const void*>(buffers.o_acc));
    values.set(Arg::hdim_v, d);
    values.set(Arg::seqlen_q, request.seqlen_q);
    values.set(Arg::num_splits, plan.splits);
    values.set(Arg::stride_o_acc, d);
    values.set(Arg::split_stride_lse_acc, buffers.rows);
    values.set(Arg::split_stride_o_acc, buffers.rows * d);
    values.set(Arg::nhead_stride_lse_acc, plan.splits * buffers.rows);
    values.set(Arg::nhead_stride_o_acc, plan.splits * buffers.rows * d);
    values.set(Arg::batch_stride_lse_acc, group ? 0 : request.seqlen_q);
    values.set(Arg::batch_stride_o_acc, group ? 0 : request.seqlen_q * d);
    values.set(Arg::stride_o, output.out.row_stride);
    values.set(Arg::nhead_stride_o, output.out.head_stride);
    values.set(Arg::batch_stride_o, group ? 0 : output.out.batch_stride);
    values.set(Arg::nhead_stride_lse, output.lse_head_stride);
    values.set(Arg::batch_stride_lse, group ? 0 : output.lse_batch_stride);
    const std::int64_t tiles = ceil_div(request.seqlen_q, plan.combine->tile_m);
    for(std::int64_t first = 0; first < request.batch; first += kMaxGridYZ)
    {
        const auto* starts = static_cast<const std::int32_t*>(output.start_q);
        const auto part    = [&](const void* data, std::int64_t stride, std::int64_t bytes) -> const void* {
            return static_cast<const char*>(data) + (group ? 0 : first * stride * bytes);
        };
        values.set(Arg::seqstart_q_ptr, static_cast<const void*>(group ? starts + first : nullptr));
        values.set(Arg::o_ptr, part(output.out.data, output.out.batch_stride, kElementBytes));
        values.set(Arg::lse_ptr, part(output.lse, output.lse_batch_stride, kFloatBytes));
        values.set(Arg::lse_acc_ptr, part(buffers.lse_acc, request.seqlen_q, kFloatBytes));
        values.set(Arg::o_acc_ptr, part(buffers.o_acc, request.seqlen_q * d, kFloatBytes));
        launch_kernel(queue, {*plan.manifest, *plan.combine}, values,
                      make_grid(*plan.combine, tiles, request.heads_q, std::min(kMaxGridYZ, request.batch - first)));
    }
}

} // namespace

void check_num_splits(std::int64_t num_splits)
{
    if(num_splits < 0 || num_splits > kMaxSplits)
    {
        fail("num_splits is ", num_splits, "; allowed: 0 (chosen for the GPU) to ", kMaxSplits);
    }
}

std::int64_t choose_num_splits(const SplitProblem& problem)
{
    const std::int64_t workgroups = problem.batch * problem.heads * ceil_div(problem.seqlen_q, problem.tile_m);
    const std::int64_t slots      = problem.multiprocessors * kWorkgroupsOfMultiprocessor;
    const std::int64_t most       = std::min(kMaxSplits, problem.seqlen_k / kMinKeysOfSplit);
    if(workgroups == 0 || most <= 1 || workgroups >= slots)
    {
        return 1;
    }
    // One round that is as full as possible; where that leaves a quarter idle, more and shorter rounds may be fuller.
    const std::int64_t one_round = std::clamp(slots / workgroups, std::int64_t{1}, most);
    std::int64_t chosen          = one_round;
    constexpr double good        = 0.75;
    for(std::int64_t splits = one_round + 1; splits <= most && fullness(workgroups * chosen, slots) < good; ++splits)
    {
        if(fullness(workgroups * splits, slots) > fullness(workgroups * chosen, slots))
        {
            chosen = splits;
        }
    }
    return chosen;
}

std::optional<SplitPlan> find_split(Library& library, int device, const FwdRequest& request, bool aligned)
{
    const Manifest& manifest  = usable_manifest(library, device);
    const KernelInfo* combine = find_own_kernel(manifest, "split_combine", request.dtype, request.hdim);
    const KernelInfo* kernel  = choose_split_kernel(manifest, request, aligned).kernel;
    if(combine == nullptr || kernel == nullptr)
    {
        return std::nullopt;
    }
    const DeviceFacts& facts  = library.devices().facts(library.hip(), device);
    const std::int64_t splits = choose_num_splits(
        {request.batch, request.heads_q, request.seqlen_q, request.seqlen_k, kernel->tile_m, facts.multiprocessors});
    return SplitPlan{&manifest, kernel, combine, splits};
}

SplitPlan plan_split(Library& library, int device, const FwdRequest& request, bool aligned, std::int64_t num_splits)
{
    check_num_splits(num_splits);
    std::optional<SplitPlan> plan = find_split(library, device, request, aligned);
    if(!plan)
    {
        const Manifest& manifest  = usable_manifest(library, device);
        const KernelChoice choice = choose_split_kernel(manifest, request, aligned);
        fail(kNoKernel,
             choice.kernel == nullptr ? choice.reason : missing_own_kernel(manifest, "split_combine", request.hdim));
    }
    plan->splits = num_splits > 0 ? num_splits : plan->splits;
    return *plan;
}

void launch_split(const Queue& queue,
                  const SplitPlan& plan,
                  const FwdRequest& request,
                  const SplitBuffers& buffers,
                  const SplitOutput& output)
{
    launch_parts(queue, plan, request, buffers);
    launch_combine(queue, plan, request, buffers, output);
}

} // namespace flash_attn_rocm
