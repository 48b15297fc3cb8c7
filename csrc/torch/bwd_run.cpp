// Runs a checked backward call: copies where a layout needs them, workspace, launch.
#include "bwd_run.hpp"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>

#include <torch/csrc/stable/ops.h>

#include "../host/bwd_launch.hpp"
#include "../host/checks.hpp"
#include "../host/error.hpp"
#include "overlap.hpp"

namespace flash_attn_rocm {
namespace {

using Shape = std::vector<std::int64_t>;

constexpr std::int64_t kHdimStep = 8; // the kernels read 16 bytes at once

void check_like(const Tensor& tensor, const char* name, const Tensor& like, const char* like_name)
{
    bool same = tensor.dim() == like.dim();
    for(std::int64_t i = 0; same && i < like.dim(); ++i)
    {
        same = tensor.size(i) == like.size(i);
    }
    STD_TORCH_CHECK(same && tensor.scalar_type() == like.scalar_type(),
                    name, " has shape ", describe_shape(tensor), " and dtype ",
                    torch::headeronly::toString(tensor.scalar_type()), "; expected those of ", like_name, ": ",
                    describe_shape(like), " and ", torch::headeronly::toString(like.scalar_type()));
    check_place(tensor, name, like);
}

void check_lse(const Tensor& lse, const Shape& shape, const Tensor& q)
{
    bool same = lse.dim() == static_cast<std::int64_t>(shape.size());
    std::string wanted;
    for(std::size_t i = 0; i < shape.size(); ++i)
    {
        same = same && lse.size(static_cast<std::int64_t>(i)) == shape[i];
        wanted += concat(i == 0 ? "" : ", ", shape[i]);
    }
    STD_TORCH_CHECK(same && lse.scalar_type() == ScalarType::Float,
                    "softmax_lse has shape ", describe_shape(lse), " and dtype ",
                    torch::headeronly::toString(lse.scalar_type()), "; expected (", wanted, ") and Float");
    check_place(lse, "softmax_lse", q);
}

void check_apart(const Tensor& a, const char* a_name, const Tensor& b, const char* b_name)
{
    STD_TORCH_CHECK(!elements_shared(a, b),
                    a_name, " and ", b_name, " share memory: both are written. Pass tensors that do not overlap");
}

void fill_zero(std::initializer_list<const Tensor*> tensors)
{
    for(const Tensor* tensor : tensors)
    {
        torch::stable::fill_(*tensor, 0.0);
    }
}

bool writable(const Tensor& tensor, std::int64_t seqlen)
{
    const TensorView view = view_of(tensor);
    return last_dim_contiguous(tensor) && elements_apart(tensor) && !layout_misaligned(view) &&
           !layout_too_large(view, seqlen, tensor.size(tensor.dim() - 1));
}

// Memory from which kernels still read when they write gradients.
std::vector<ByteRange> input_memory(const BwdInputs& inputs)
{
    std::vector<ByteRange> ranges;
    for(const Tensor* input : {&inputs.dout, &inputs.q, &inputs.k, &inputs.v, &inputs.out, &inputs.lse})
    {
        ranges.push_back(byte_range(*input));
    }
    return ranges;
}

bool meets(const Tensor& tensor, const std::vector<ByteRange>& ranges)
{
    const ByteRange own = byte_range(tensor);
    return std::any_of(ranges.begin(), ranges.end(), [own](ByteRange range) { return ranges_meet(own, range); });
}

// A gradient as the kernels can write it: the caller's tensor, or one that is copied into it afterwards.
struct Target
{
    Tensor given;
    Tensor written;
    bool copied;

    Target(const Tensor& tensor, std::int64_t seqlen, const std::vector<ByteRange>& read)
        : given(tensor), written(tensor), copied(!writable(tensor, seqlen) || meets(tensor, read))
    {
        if(copied)
        {
            written = make_tensor_like(given);
        }
    }

    void finish()
    {
        if(copied)
        {
            torch::stable::copy_(given, written);
        }
    }
};

struct Targets
{
    Target dq, dk, dv;

    Targets(const Gradients& gradients, const std::vector<ByteRange>& read, const FwdRequest& forward)
        : dq(gradients.dq, forward.seqlen_q, read), dk(gradients.dk, forward.seqlen_k, read),
          dv(gradients.dv, forward.seqlen_k, read)
    {
    }

    void finish()
    {
        dq.finish();
        dk.finish();
        dv.finish();
    }
};

// Rows behind the last one must read as zeros, which the kernels leave to the bounds of a head's memory: rows that
// overlap (as those of an expanded tensor, or a single row with a stride of 0) would put them inside.
Tensor input(const Tensor& tensor, std::int64_t seqlen, const char* name)
{
    if(view_of(tensor).row_stride >= tensor.size(tensor.dim() - 1))
    {
        return aligned(readable(tensor, seqlen, name));
    }
    return aligned(readable(copy_of(tensor), seqlen, name)); // torch may call the tensor contiguous
}

// Inputs as the kernels can read them.
struct ReadableInputs
{
    Tensor q, k, v, out, dout, lse;

    ReadableInputs(const BwdInputs& given, const Tensor& contiguous_lse, const FwdRequest& forward)
        : q(input(given.q, forward.seqlen_q, "q")), k(input(given.k, forward.seqlen_k, "k")),
          v(input(given.v, forward.seqlen_k, "v")), out(input(given.out, forward.seqlen_q, "out")),
          dout(input(given.dout, forward.seqlen_q, "dout")), lse(contiguous_lse)
    {
    }
};

// float32: parts of dq, of every query head.
Tensor make_dq_parts(const FwdRequest& forward, const BwdPlan& plan, const Tensor& q)
{
    const auto make = plan.zero_parts ? make_zeros : make_tensor;
    return forward.mode == Mode::group
               ? make(q, {plan.splits, forward.heads_q, q.size(0), forward.hdim}, ScalarType::Float)
               : make(q, {plan.splits, forward.batch, forward.heads_q, forward.seqlen_q, forward.hdim}, ScalarType::Float);
}

// dk or dv of every query head.
Tensor make_key_parts(const FwdRequest& forward, const Tensor& k)
{
    return forward.mode == Mode::group
               ? make_zeros(k, {forward.heads_q, k.size(0), forward.hdim}, k.scalar_type())
               : make_tensor(k, {forward.batch, forward.heads_q, forward.seqlen_k, forward.hdim}, k.scalar_type());
}

// The memory of BwdWorkspace.
struct WorkspaceTensors
{
    const Tensor& delta;
    Tensor dq_parts;
    std::optional<Tensor> dk_parts, dv_parts;
    std::int64_t rows_k;

    WorkspaceTensors(const ReadableInputs& inputs, const Tensor& delta_like_lse, const FwdRequest& forward, const BwdPlan& plan)
        : delta(delta_like_lse), dq_parts(make_dq_parts(forward, plan, inputs.q)),
          rows_k(forward.mode == Mode::group ? inputs.k.size(0) : forward.seqlen_k)
    {
        if(plan.sum_heads != nullptr)
        {
            dk_parts = make_key_parts(forward, inputs.k);
            dv_parts = make_key_parts(forward, inputs.v);
        }
    }

    BwdWorkspace pointers() const
    {
        const auto data = [](const std::optional<Tensor>& parts) { return parts ? parts->data_ptr() : nullptr; };
        return {delta.data_ptr(), dq_parts.data_ptr(), data(dk_parts), data(dv_parts), rows_k};
    }
};

void set_views(BwdRequest& request, const ReadableInputs& inputs, const Targets& targets)
{
    FwdRequest& forward = request.forward;
    forward.q           = view_of(inputs.q);
    forward.k           = view_of(inputs.k);
    forward.v           = view_of(inputs.v);
    forward.out         = view_of(inputs.out);
    forward.lse         = inputs.lse.data_ptr();
    request.dout        = view_of(inputs.dout);
    request.dq          = view_of(targets.dq.written);
    request.dk          = view_of(targets.dk.written);
    request.dv          = view_of(targets.dv.written);
}

void use_tensors(const ReadableInputs& inputs, const Targets& targets, const WorkspaceTensors& workspace, CallDevice& device)
{
    for(const Tensor* tensor : {&inputs.q, &inputs.k, &inputs.v, &inputs.out, &inputs.dout, &inputs.lse,
                                &targets.dq.written, &targets.dk.written, &targets.dv.written, &workspace.delta,
                                &workspace.dq_parts})
    {
        device.use(*tensor);
    }
    device.use(workspace.dk_parts);
    device.use(workspace.dv_parts);
}

} // namespace

void check_bwd_tensors(const BwdInputs& inputs, const Gradients& gradients, const std::vector<std::int64_t>& lse_shape)
{
    check_like(inputs.dout, "dout", inputs.q, "q");
    check_like(inputs.out, "out", inputs.q, "q");
    check_like(gradients.dq, "dq", inputs.q, "q");
    check_like(inputs.v, "v", inputs.k, "k");
    check_like(gradients.dk, "dk", inputs.k, "k");
    check_like(gradients.dv, "dv", inputs.v, "v");
    check_not_expanded(gradients.dq, "dq");
    check_not_expanded(gradients.dk, "dk");
    check_not_expanded(gradients.dv, "dv");
    check_apart(gradients.dq, "dq", gradients.dk, "dk");
    check_apart(gradients.dq, "dq", gradients.dv, "dv");
    check_apart(gradients.dk, "dk", gradients.dv, "dv");
    check_lse(inputs.lse, lse_shape, inputs.q);
    const std::int64_t hdim = inputs.q.size(inputs.q.dim() - 1);
    STD_TORCH_CHECK(hdim % kHdimStep == 0, "head dim is ", hdim, "; backward takes multiples of ", kHdimStep,
                    ": pad q, k, v, out and dout with zeros");
}

Tensor run_bwd(BwdRequest& request, const BwdInputs& inputs, const Gradients& gradients, CallDevice& device)
{
    const FwdRequest& forward = request.forward;
    const BwdPlan plan        = plan_bwd(Library::instance(), device.index(), request);
    const Tensor lse          = dense(inputs.lse);
    const Tensor delta        = make_tensor_like(lse);
    if(forward.batch == 0 || forward.seqlen_q == 0 || forward.seqlen_k == 0 || inputs.q.numel() == 0 ||
       inputs.k.numel() == 0)
    {
        fill_zero({&gradients.dq, &gradients.dk, &gradients.dv, &delta});
        return delta;
    }
    Targets targets(gradients, input_memory(inputs), forward);
    if(forward.mode == Mode::group)
    {
        // Sequences without queries or keys, and rows of no sequence, are not written by any kernel.
        fill_zero({&targets.dq.written, &targets.dk.written, &targets.dv.written, &delta});
    }
    const ReadableInputs read(inputs, lse, forward);
    const WorkspaceTensors workspace(read, delta, forward, plan);
    set_views(request, read, targets);
    use_tensors(read, targets, workspace, device);
    device.run([&](const Queue& queue) { launch_bwd(queue, plan, request, workspace.pointers()); });
    targets.finish();
    return delta;
}

} // namespace flash_attn_rocm
