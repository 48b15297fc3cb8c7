// The torch op `fwd`, attention of sequences of one length: checks tensors, makes their memory layout one the kernels can
// read, and launches.
#include <optional>
#include <tuple>

#include "../host/checks.hpp"
#include "../host/launch.hpp"
#include "ops.hpp"
#include "options.hpp"

namespace flash_attn_rocm {
namespace {

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

// Extents; options and pointers follow.
FwdRequest make_request(const Tensor& q, const Tensor& k)
{
    FwdRequest request;
    request.dtype            = dtype_name(q);
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

// Where a mask hides whole tiles the kernels write nothing to the map, so zeros.
Tensor make_dropout_map(const Tensor& q, FwdRequest& request, bool wanted)
{
    if(!wanted || request.dropout.p == 0.0)
    {
        return make_tensor(q, {0}, ScalarType::Byte);
    }
    Tensor map = make_zeros(q, {request.batch, request.heads_q, request.seqlen_q, request.seqlen_k}, ScalarType::Byte);
    request.dropout.map              = map.data_ptr();
    request.dropout.map_row_stride   = request.seqlen_k;
    request.dropout.map_head_stride  = request.seqlen_q * request.seqlen_k;
    request.dropout.map_batch_stride = request.heads_q * request.dropout.map_head_stride;
    return map;
}

// The tensor, or a copy where the kernel cannot read it as it lies in memory.
Tensor input(const KernelInfo& kernel, const Tensor& tensor, const char* name)
{
    const Tensor found = readable(tensor, tensor.size(1), name);
    return needs_alignment(kernel) ? aligned(found) : found;
}

// q (batch, seqlen_q, nheads, headdim), k and v (batch, seqlen_k, nheads_k, headdim). Returns out, like q; lse, float32
// (batch, nheads, seqlen_q); the dropout map, uint8 (batch, nheads, seqlen_q, seqlen_k), or empty.
std::tuple<Tensor, Tensor, Tensor> fwd(const Tensor& q,
                                       const Tensor& k,
                                       const Tensor& v,
                                       const std::optional<Tensor>& alibi_slopes,
                                       const std::optional<Tensor>& rng_state,
                                       double softmax_scale,
                                       std::int64_t window_left,
                                       std::int64_t window_right,
                                       double softcap,
                                       double dropout_p,
                                       bool return_dropout_map,
                                       bool /*deterministic*/) // of the gradients: nothing to do here
{
    check_tensors(q, k, v);
    CallDevice device(q);
    FwdRequest request = make_request(q, k);
    set_options(
        request, q, {softmax_scale, window_left, window_right, softcap, dropout_p, alibi_slopes, rng_state}, device);
    const InstalledKernel chosen = select_fwd_kernel(Library::instance(), device.index(), request);

    const Tensor out = make_tensor_like(q);
    const Tensor lse = make_tensor(q, {request.batch, request.heads_q, request.seqlen_q}, ScalarType::Float);
    const Tensor map = make_dropout_map(q, request, return_dropout_map);
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
    const Tensor queries = input(chosen.kernel, q, "q");
    const Tensor keys    = input(chosen.kernel, k, "k");
    const Tensor values  = input(chosen.kernel, v, "v");
    request.q            = view_of(queries);
    request.k            = view_of(keys);
    request.v            = view_of(values);
    request.out          = view_of(out);
    request.lse          = lse.data_ptr();
    for(const Tensor* tensor : {&queries, &keys, &values, &out, &lse, &map})
    {
        device.use(*tensor);
    }
    device.run([&](const Queue& queue) { launch_fwd(queue, chosen, request); });
    return {out, lse, map};
}

} // namespace

constinit const BoxedOp fwd_op = FA_BOX(&fwd);

} // namespace flash_attn_rocm
