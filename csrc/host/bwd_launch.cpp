// Runs a backward request: chooses its kernels, fills their arguments and launches them in order on one stream.
#include "bwd_launch.hpp"

#include <algorithm>

#include "dispatch.hpp"
#include "error.hpp"
#include "integers.hpp"
#include "kernel_args.hpp"
#include "launch.hpp"

namespace flash_attn_rocm {
namespace {

// A tensor of the workspace: contiguous rows of the head dim, head by head. Parts of dq are outermost, so that all
// other strides, which CK's kernels have in 32 bits, are those of one part.
struct Parts
{
    std::int64_t split_stride, head_stride, batch_stride;
};

// Rows of q: of one batch entry, or of all sequences in group mode.
std::int64_t query_rows(const FwdRequest& forward)
{
    return forward.mode == Mode::group ? forward.lse_head_stride : forward.seqlen_q;
}

Parts dq_parts_layout(const BwdPlan& plan, const FwdRequest& forward)
{
    const bool group         = forward.mode == Mode::group;
    const std::int64_t head  = query_rows(forward) * forward.hdim;
    const std::int64_t batch = forward.heads_q * head;
    const std::int64_t split = (group ? 1 : forward.batch) * batch;
    return {plan.splits == 1 ? 0 : split, head, group ? 0 : batch};
}

// dk and dv of each query head: the final tensors, or those of the workspace.
TensorView per_query_head(const FwdRequest& forward, const TensorView& final, void* parts, std::int64_t rows)
{
    if(parts == nullptr)
    {
        return final;
    }
    const std::int64_t head = rows * forward.hdim;
    return {parts, forward.mode == Mode::group ? 0 : forward.heads_q * head, forward.hdim, head};
}

// One of the call's tensors in one launch: the pointer moves with the batch entry that the launch begins at.
struct Operand
{
    Arg pointer;
    const void* data;
    std::int64_t batch_stride; // in elements
    std::int64_t element_bytes;
    Arg stride; // the argument that holds batch_stride
};

struct Step
{
    const KernelInfo& kernel;
    std::vector<Operand> operands;
    ArgValues values;
    std::int64_t tiles; // grid x
    std::int64_t heads; // grid y
};

void set_view(Step& step, Arg pointer, Arg row, Arg head, Arg batch, const TensorView& view)
{
    step.values.set(row, view.row_stride);
    step.values.set(head, view.head_stride);
    step.operands.push_back({pointer, view.data, view.batch_stride, kElementBytes, batch});
}

void set_delta(Step& step, const FwdRequest& forward, const BwdWorkspace& workspace, Arg head, Arg batch)
{
    step.values.set(head, forward.lse_head_stride);
    step.operands.push_back({Arg::d_ptr, workspace.delta, forward.lse_batch_stride, kFloatBytes, batch});
}

Step dot_step(const BwdPlan& plan, const BwdRequest& request, const BwdWorkspace& workspace)
{
    const FwdRequest& forward = request.forward;
    Step step{plan.dot, {}, {}, ceil_div(forward.seqlen_q, plan.dot.tile_m), forward.heads_q};
    set_view(step, Arg::o_ptr, Arg::stride_o, Arg::nhead_stride_o, Arg::batch_stride_o, forward.out);
    set_view(step, Arg::do_ptr, Arg::stride_do, Arg::nhead_stride_do, Arg::batch_stride_do, request.dout);
    set_delta(step, forward, workspace, Arg::nhead_stride_d, Arg::batch_stride_d);
    step.values.set(Arg::seqlen_q, forward.seqlen_q);
    step.values.set(Arg::hdim_v, forward.hdim);
    step.values.set(Arg::p_undrop, static_cast<float>(1.0 - forward.dropout.p));
    return step;
}

Step gradient_step(const BwdPlan& plan, const BwdRequest& request, const BwdWorkspace& workspace)
{
    const FwdRequest& forward = request.forward;
    Step step{plan.gradient, {}, bwd_arg_values(request), ceil_div(forward.seqlen_k, plan.gradient.tile_n),
              forward.heads_q};
    const Parts dq      = dq_parts_layout(plan, forward);
    const TensorView dk = per_query_head(forward, request.dk, workspace.dk_parts, workspace.rows_k);
    const TensorView dv = per_query_head(forward, request.dv, workspace.dv_parts, workspace.rows_k);
    set_view(step, Arg::q_ptr, Arg::stride_q, Arg::nhead_stride_q, Arg::batch_stride_q, forward.q);
    set_view(step, Arg::k_ptr, Arg::stride_k, Arg::nhead_stride_k, Arg::batch_stride_k, forward.k);
    set_view(step, Arg::v_ptr, Arg::stride_v, Arg::nhead_stride_v, Arg::batch_stride_v, forward.v);
    set_view(step, Arg::do_ptr, Arg::stride_do, Arg::nhead_stride_do, Arg::batch_stride_do, request.dout);
    set_view(step, Arg::dk_ptr, Arg::stride_dk, Arg::nhead_stride_dk, Arg::batch_stride_dk, dk);
    set_view(step, Arg::dv_ptr, Arg::stride_dv, Arg::nhead_stride_dv, Arg::batch_stride_dv, dv);
    set_delta(step, forward, workspace, Arg::nhead_stride_lsed, Arg::batch_stride_lsed);
    step.operands.push_back({Arg::lse_ptr, forward.lse, forward.lse_batch_stride, kFloatBytes, Arg::batch_stride_lsed});
    step.operands.push_back(
        {Arg::dq_acc_ptr, workspace.dq_parts, dq.batch_stride, kFloatBytes, Arg::batch_stride_dq_acc});
    step.operands.push_back({Arg::alibi_slope_ptr, forward.alibi_slopes, forward.alibi_batch_stride, kFloatBytes,
                             Arg::alibi_slope_stride});
    step.values.set(Arg::stride_dq_acc, forward.hdim);
    step.values.set(Arg::split_stride_dq_acc, dq.split_stride);
    step.values.set(Arg::nhead_stride_dq_acc, dq.head_stride);
    return step;
}

Step sum_keys_step(const BwdPlan& plan, const BwdRequest& request, const BwdWorkspace& workspace)
{
    const FwdRequest& forward = request.forward;
    Step step{plan.sum_keys, {}, {}, ceil_div(forward.seqlen_q, plan.sum_keys.tile_m), forward.heads_q};
    const Parts dq = dq_parts_layout(plan, forward);
    set_view(step, Arg::sum_ptr, Arg::stride_sum, Arg::nhead_stride_sum, Arg::batch_stride_sum, request.dq);
    step.operands.push_back({Arg::parts_ptr, workspace.dq_parts, dq.batch_stride, kFloatBytes, Arg::batch_stride_parts});
    step.values.set(Arg::stride_parts, forward.hdim);
    step.values.set(Arg::nhead_stride_parts, dq.head_stride);
    step.values.set(Arg::split_stride_parts, dq.split_stride);
    step.values.set(Arg::seqlen_q, forward.seqlen_q);
    step.values.set(Arg::seqlen_k, forward.seqlen_k);
    step.values.set(Arg::hdim_q, forward.hdim);
    step.values.set(Arg::num_splits, plan.splits);
    step.values.set(Arg::keys_per_split, plan.gradient.deterministic ? plan.gradient.tile_n : 0);
    return step;
}

Step sum_heads_step(
    const BwdPlan& plan, const FwdRequest& forward, const TensorView& final, void* parts, std::int64_t rows)
{
    Step step{*plan.sum_heads, {}, {}, ceil_div(forward.seqlen_k, plan.sum_heads->tile_m), forward.heads_k};
    const std::int64_t group = forward.heads_q / forward.heads_k;
    TensorView view          = per_query_head(forward, final, parts, rows);
    step.values.set(Arg::split_stride_parts, view.head_stride);
    view.head_stride *= group;
    set_view(step, Arg::sum_ptr, Arg::stride_sum, Arg::nhead_stride_sum, Arg::batch_stride_sum, final);
    set_view(step, Arg::parts_ptr, Arg::stride_parts, Arg::nhead_stride_parts, Arg::batch_stride_parts, view);
    step.values.set(Arg::seqlen_q, forward.seqlen_k);
    step.values.set(Arg::seqlen_k, forward.seqlen_k);
    step.values.set(Arg::hdim_q, forward.hdim);
    step.values.set(Arg::num_splits, group);
    step.values.set(Arg::keys_per_split, std::int64_t{0});
    return step;
}

// Batch strides are 32-bit in CK's kernel; where one does not fit, every batch entry is launched from its own address.
std::int64_t batches_per_launch(const Step& step, const FwdRequest& forward)
{
    std::int64_t largest = 0;
    for(const Operand& operand : step.operands)
    {
        largest = std::max(largest, operand.batch_stride);
    }
    return largest > kInt32Max ? 1 : std::min(forward.batch, kMaxGridYZ);
}

void run_step(const Queue& queue, const BwdPlan& plan, const FwdRequest& forward, Step& step, bool rows_are_keys)
{
    const Sequences& sequences = forward.sequences;
    const void* rows           = rows_are_keys ? sequences.start_k : sequences.start_q;
    const std::int64_t count   = batches_per_launch(step, forward);
    if(count < forward.batch && forward.dropout.p > 0 && &step.kernel == &plan.gradient)
    {
        // The kernels number random values from the first batch entry of a launch.
        fail("dropout with ", forward.batch, " batch entries needs several launches (more than ", kMaxGridYZ,
             " entries, or a batch stride of 2^31 elements or more), which would repeat random numbers. Split the batch");
    }
    for(std::int64_t first = 0; first < forward.batch; first += count)
    {
        for(const Operand& operand : step.operands)
        {
            step.values.set(operand.pointer, advance(operand.data, first * operand.batch_stride, operand.element_bytes));
            step.values.set(operand.stride, count == 1 ? std::int64_t{0} : operand.batch_stride);
        }
        step.values.set(Arg::seqstart_q_ptr, advance(rows, first, kInt32Bytes));
        step.values.set(Arg::seqstart_k_ptr, advance(sequences.start_k, first, kInt32Bytes));
        const Grid grid = make_grid(step.kernel, step.tiles, step.heads, std::min(count, forward.batch - first));
        launch_kernel(queue, {plan.manifest, step.kernel}, step.values, grid);
    }
}

const KernelInfo& own_kernel(const Manifest& manifest, const char* op, const FwdRequest& forward)
{
    const KernelInfo* kernel = find_own_kernel(manifest, op, forward.dtype, forward.hdim);
    if(kernel == nullptr)
    {
        fail(kNoKernel, missing_own_kernel(manifest, op, forward.hdim));
    }
    return *kernel;
}

} // namespace

BwdPlan plan_bwd(Library& library, int device, const BwdRequest& request)
{
    const FwdRequest& forward = request.forward;
    const Manifest& manifest  = usable_manifest(library, device);
    const KernelChoice choice = choose_bwd_kernel(manifest, request);
    if(choice.kernel == nullptr)
    {
        fail(kNoKernel, choice.reason);
    }
    const KernelInfo& gradient = *choice.kernel;
    const bool grouped         = forward.heads_q != forward.heads_k;
    return {manifest,
            own_kernel(manifest, "bwd_dot", forward),
            gradient,
            own_kernel(manifest, "bwd_sum_keys", forward),
            grouped ? &own_kernel(manifest, "bwd_sum_heads", forward) : nullptr,
            gradient.deterministic ? std::max<std::int64_t>(1, ceil_div(forward.seqlen_k, gradient.tile_n)) : 1,
            !gradient.deterministic || clamp_window(forward).bounded()};
}

void launch_bwd(const Queue& queue, const BwdPlan& plan, const BwdRequest& request, const BwdWorkspace& workspace)
{
    const FwdRequest& forward = request.forward;
    const auto run = [&](Step step, bool rows_are_keys) { run_step(queue, plan, forward, step, rows_are_keys); };
    run(dot_step(plan, request, workspace), false);
    run(gradient_step(plan, request, workspace), false);
    run(sum_keys_step(plan, request, workspace), false);
    if(plan.sum_heads != nullptr)
    {
        run(sum_heads_step(plan, forward, request.dk, workspace.dk_parts, workspace.rows_k), true);
        run(sum_heads_step(plan, forward, request.dv, workspace.dv_parts, workspace.rows_k), true);
    }
}

} // namespace flash_attn_rocm
