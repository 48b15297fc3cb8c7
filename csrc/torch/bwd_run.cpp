// Runs a checked backward call: copies where a layout needs them, workspace, launch.
#include "bwd_run.hpp"

#include <algorithm>
#include <utility>

#include <torch/csrc/stable/ops.h>

#include "../host/bwd_launch.hpp"
#include "../host/checks.hpp"
#include "../host/error.hpp"

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

// Whether every element has memory of its own; false for some unusual layouts that do, too.
bool elements_apart(const Tensor& tensor)
{
    std::vector<std::pair<std::int64_t, std::int64_t>> dims; // stride, size
    for(std::int64_t i = 0; i < tensor.dim(); ++i)
    {
        dims.emplace_back(tensor.stride(i), tensor.size(i));
    }
    std::sort(dims.begin(), dims.end());
    std::int64_t span = 1; // elements from the first to the last one of the dimensions so far
    for(const auto& [stride, size] : dims)
    {
        if(size > 1 && stride < span)
        {
            return false;
        }
        span += (size - 1) * stride;
    }
    return true;
}

bool writable(const Tensor& tensor, std::int64_t seqlen)
{
    const std::int64_t last = tensor.dim() - 1;
    const TensorView view   = view_of(tensor);
    return (tensor.size(last) == 1 || tensor.stride(last) == 1) && elements_apart(tensor) && !layout_misaligned(view) &&
           !layout_too_large(view, seqlen, tensor.size(last));
}

// Several elements in one place would be written by several waves, in any order.
void check_target(const Tensor& tensor, const char* name)
{
    for(std::int64_t i = 0; i < tensor.dim(); ++i)
    {
        STD_TORCH_CHECK(tensor.stride(i) != 0 || tensor.size(i) <= 1,
                        name, " has shape ", describe_shape(tensor), " and stride 0 in dimension ", i,
                        ": several of its elements are one place in memory. Pass a tensor that is not expanded");
    }
}

// A gradient as the kernels can write it: the caller's tensor, or one that is copied into it afterwards.
struct Target
{
    Tensor given;
    Tensor written;
    bool copied;

    Target(const Tensor& tensor, std::int64_t seqlen)
        : given(tensor), written(tensor), copied(!writable(tensor, seqlen))
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

// Rows behind the last one must read as zeros, which the kernels leave to the bounds of a head's memory: rows that
// overlap (as those of an expanded tensor, or a single row with a stride of 0) would put them inside.
Tensor input(const Tensor& tensor, std::int64_t seqlen, const char* name)
{
    if(view_of(tensor).row_stride >= tensor.size(tensor.dim() - 1))
    {
        return aligned(readable(tensor, seqlen, name));
    }
    Tensor apart = make_tensor_like(tensor); // torch may call the tensor contiguous, and then contiguous() is itself
    torch::stable::copy_(apart, tensor);
    return aligned(readable(apart, seqlen, name));
}

Tensor zeros_or_empty(const Tensor& like, const Shape& shape, ScalarType dtype, bool zeros)
{
    return zeros ? torch::stable::new_zeros(like, shape, dtype) : torch::stable::new_empty(like, shape, dtype);
}

// float32: parts of dq, of every query head.
Tensor make_dq_parts(const FwdRequest& forward, const BwdPlan& plan, const Tensor& q)
{
    const bool group = forward.mode == Mode::group;
    Shape shape      = group ? Shape{plan.splits, forward.heads_q, q.size(0), forward.hdim}
                             : Shape{plan.splits, forward.batch, forward.heads_q, forward.seqlen_q, forward.hdim};
    return zeros_or_empty(q, shape, ScalarType::Float, plan.zero_parts);
}

// dk or dv of every query head.
Tensor make_key_parts(const FwdRequest& forward, const Tensor& k)
{
    const bool group = forward.mode == Mode::group;
    Shape shape      = group ? Shape{forward.heads_q, k.size(0), forward.hdim}
                             : Shape{forward.batch, forward.heads_q, forward.seqlen_k, forward.hdim};
    return zeros_or_empty(k, shape, k.scalar_type(), group);
}

void fill_zero(Tensor& tensor) { torch::stable::fill_(tensor, 0.0); }

} // namespace

void check_bwd_tensors(const BwdTensors& tensors, const std::vector<std::int64_t>& lse_shape)
{
    check_like(tensors.dout, "dout", tensors.q, "q");
    check_like(tensors.out, "out", tensors.q, "q");
    check_like(tensors.dq, "dq", tensors.q, "q");
    check_like(tensors.v, "v", tensors.k, "k");
    check_like(tensors.dk, "dk", tensors.k, "k");
    check_like(tensors.dv, "dv", tensors.v, "v");
    check_target(tensors.dq, "dq");
    check_target(tensors.dk, "dk");
    check_target(tensors.dv, "dv");
    const Tensor& lse = tensors.lse;
    bool same         = lse.dim() == static_cast<std::int64_t>(lse_shape.size());
    std::string wanted;
    for(std::size_t i = 0; i < lse_shape.size(); ++i)
    {
        same = same && lse.size(static_cast<std::int64_t>(i)) == lse_shape[i];
        wanted += concat(i == 0 ? "" : ", ", lse_shape[i]);
    }
    STD_TORCH_CHECK(same && lse.scalar_type() == ScalarType::Float,
                    "softmax_lse has shape ", describe_shape(lse), " and dtype ",
                    torch::headeronly::toString(lse.scalar_type()), "; expected (", wanted, ") and Float");
    check_place(lse, "softmax_lse", tensors.q);
    const std::int64_t hdim = tensors.q.size(tensors.q.dim() - 1);
    STD_TORCH_CHECK(hdim % kHdimStep == 0, "head dim is ", hdim, "; backward takes multiples of ", kHdimStep,
                    ": pad q, k, v, out and dout with zeros");
}

Tensor run_bwd(BwdRequest& request, BwdTensors tensors, std::vector<Tensor> used)
{
    FwdRequest& forward = request.forward;
    check_fwd_request(forward);
    const BwdPlan plan = plan_bwd(Library::instance(), device_of(tensors.q), request);

    tensors.lse  = torch::stable::contiguous(tensors.lse);
    Tensor delta = make_tensor_like(tensors.lse);
    if(forward.batch == 0 || forward.seqlen_q == 0 || forward.seqlen_k == 0 || tensors.q.numel() == 0 ||
       tensors.k.numel() == 0)
    {
        for(Tensor* tensor : {&tensors.dq, &tensors.dk, &tensors.dv, &delta})
        {
            fill_zero(*tensor);
        }
        return delta;
    }
    Target dq(tensors.dq, forward.seqlen_q);
    Target dk(tensors.dk, forward.seqlen_k);
    Target dv(tensors.dv, forward.seqlen_k);
    const bool group = forward.mode == Mode::group;
    if(group)
    {
        // Sequences without queries or keys, and rows of no sequence, are not written by any kernel.
        for(Tensor* tensor : {&dq.written, &dk.written, &dv.written, &delta})
        {
            fill_zero(*tensor);
        }
    }
    const Tensor q    = input(tensors.q, forward.seqlen_q, "q");
    const Tensor k    = input(tensors.k, forward.seqlen_k, "k");
    const Tensor v    = input(tensors.v, forward.seqlen_k, "v");
    const Tensor out  = input(tensors.out, forward.seqlen_q, "out");
    const Tensor dout = input(tensors.dout, forward.seqlen_q, "dout");
    Tensor parts      = make_dq_parts(forward, plan, q);
    used.insert(used.end(), {q, k, v, out, dout, tensors.lse, delta, dq.written, dk.written, dv.written, parts});

    BwdWorkspace workspace;
    workspace.rows_k   = group ? k.size(0) : forward.seqlen_k;
    workspace.delta    = delta.data_ptr();
    workspace.dq_parts = parts.data_ptr();
    if(plan.sum_heads != nullptr)
    {
        Tensor dk_parts    = make_key_parts(forward, k);
        Tensor dv_parts    = make_key_parts(forward, v);
        workspace.dk_parts = dk_parts.data_ptr();
        workspace.dv_parts = dv_parts.data_ptr();
        used.insert(used.end(), {dk_parts, dv_parts});
    }
    forward.q    = view_of(q);
    forward.k    = view_of(k);
    forward.v    = view_of(v);
    forward.out  = view_of(out);
    forward.lse  = tensors.lse.data_ptr();
    request.dout = view_of(dout);
    request.dq   = view_of(dq.written);
    request.dk   = view_of(dk.written);
    request.dv   = view_of(dv.written);
    run_where(q, used, [&](int device, HipStream stream) {
        launch_bwd(Library::instance(), device, stream, plan, request, workspace);
    });
    dq.finish();
    dk.finish();
    dv.finish();
    return delta;
}

} // namespace flash_attn_rocm
