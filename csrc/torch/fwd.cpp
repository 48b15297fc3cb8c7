// The torch op `fwd`: checks tensors, makes their memory layout one the kernels can read, and launches.
#include "fwd.hpp"

#include <vector>

#include <torch/csrc/stable/ops.h>

#include "../host/checks.hpp"
#include "../host/launch.hpp"
#include "run.hpp"

namespace flash_attn_rocm {
namespace {

using Shape = std::vector<std::int64_t>;

void check_tensors(const Tensor& q, const Tensor& k, const Tensor& v)
{
    for(const Tensor* tensor : {&q, &k, &v})
    {
        STD_TORCH_CHECK(tensor->dim() == 4,
                        "q, k and v must have 4 dimensions (batch, seqlen, nheads, headdim), but one has shape ",
                        describe_shape(*tensor));
    }
    const bool shapes_agree = k.size(0) == q.size(0) && v.size(0) == q.size(0) && k.size(1) == v.size(1) &&
                              k.size(2) == v.size(2) && k.size(3) == q.size(3) && v.size(3) == q.size(3);
    check_dtypes(q, k, v);
    STD_TORCH_CHECK(shapes_agree,
                    "shapes do not agree: q ", describe_shape(q), ", k ", describe_shape(k), ", v ",
                    describe_shape(v), "; expected (batch, seqlen, nheads, headdim) with k and v alike");
}

FwdRequest make_request(const Tensor& q, const Tensor& k)
{
    FwdRequest request;
    request.dtype            = q.scalar_type() == ScalarType::Half ? "fp16" : "bf16";
    request.batch            = q.size(0);
    request.seqlen_q         = q.size(1);
    request.seqlen_k         = k.size(1);
    request.heads_q          = q.size(2);
    request.heads_k          = k.size(2);
    request.hdim             = q.size(3);
    request.lse_head_stride  = request.seqlen_q;
    request.lse_batch_stride = request.heads_q * request.seqlen_q;
    return request;
}

// uint8 (batch, nheads, seqlen_q, seqlen_k); where a mask hides whole tiles the kernels write nothing, so zeros.
Tensor make_dropout_map(const Tensor& q, FwdRequest& request, bool wanted)
{
    if(!wanted || request.dropout.p == 0.0)
    {
        return make_tensor(q, {0}, ScalarType::Byte);
    }
    Tensor map = torch::stable::new_zeros(
        q, Shape{request.batch, request.heads_q, request.seqlen_q, request.seqlen_k}, ScalarType::Byte);
    request.dropout.map              = map.data_ptr();
    request.dropout.map_row_stride   = request.seqlen_k;
    request.dropout.map_head_stride  = request.seqlen_q * request.seqlen_k;
    request.dropout.map_batch_stride = request.heads_q * request.dropout.map_head_stride;
    return map;
}

// Replaces tensors by copies where the kernel cannot read them as they lie in memory.
void make_readable(const KernelInfo& kernel, Tensor& q, Tensor& k, Tensor& v)
{
    q = readable(q, q.size(1), "q");
    k = readable(k, k.size(1), "k");
    v = readable(v, v.size(1), "v");
    if(needs_alignment(kernel))
    {
        q = aligned(q);
        k = aligned(k);
        v = aligned(v);
    }
}

} // namespace

FwdResult fwd(Tensor q,
              Tensor k,
              Tensor v,
              std::optional<Tensor> alibi_slopes,
              std::optional<Tensor> rng_state,
              double softmax_scale,
              std::int64_t window_left,
              std::int64_t window_right,
              double softcap,
              double dropout_p,
              bool return_dropout_map,
              bool /*deterministic*/)
{
    check_tensors(q, k, v);
    check_device(q);
    const CurrentDevice current(q);
    FwdRequest request    = make_request(q, k);
    request.softmax_scale = softmax_scale;
    request.window_left   = window_left;
    request.window_right  = window_right;
    request.softcap       = softcap;
    request.dropout.p     = dropout_p;
    std::vector<Tensor> used;
    set_features(request, q, alibi_slopes, rng_state, used);
    check_fwd_request(request);
    const FwdKernel chosen = select_fwd_kernel(Library::instance(), device_of(q), request);

    Tensor out = make_tensor_like(q);
    Tensor lse = make_tensor(q, {request.batch, request.heads_q, request.seqlen_q}, ScalarType::Float);
    Tensor map = make_dropout_map(q, request, return_dropout_map);
    if(out.numel() == 0)
    {
        return {out, lse, map};
    }
    if(request.seqlen_k == 0)
    {
        fill_unseen(out, lse);
        return {out, lse, map};
    }
    STD_TORCH_CHECK(!layout_too_large(view_of(out), request.seqlen_q, request.hdim),
                    "out has shape ", describe_shape(out),
                    ": one head spans more than 2 GiB. Split the heads or the sequence into chunks");
    make_readable(chosen.kernel, q, k, v);
    request.q   = view_of(q);
    request.k   = view_of(k);
    request.v   = view_of(v);
    request.out = view_of(out);
    request.lse = lse.data_ptr();
    used.insert(used.end(), {q, k, v, out, lse, map});
    run_where(q, used, [&](int device, HipStream stream) {
        launch_fwd(Library::instance(), device, stream, chosen, request);
    });
    return {out, lse, map};
}

} // namespace flash_attn_rocm
