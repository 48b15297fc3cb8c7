// The torch ops `bwd` and `varlen_bwd`, which return new gradients, and `bwd_out` and `varlen_bwd_out`, which write into
// the caller's: from tensors to a request.
#include <algorithm>
#include <optional>
#include <tuple>

#include "bwd_run.hpp"
#include "ops.hpp"
#include "options.hpp"

namespace flash_attn_rocm {
namespace {

using OptionalTensor = std::optional<Tensor>;
using BwdResult      = std::tuple<Tensor, Tensor, Tensor, Tensor>; // dq, dk, dv, softmax_d

struct BwdOptions
{
    Options forward;
    bool deterministic;
};

// Sequences of different lengths, one after the other.
struct SequenceTables
{
    const Tensor& cu_seqlens_q; // (batch + 1)
    const Tensor& cu_seqlens_k;
    std::int64_t max_seqlen_q;
    std::int64_t max_seqlen_k;
};

// q, k and v of (batch, seqlen, nheads, headdim), or without the batch and of sequences one after the other.
void check_inputs(const BwdInputs& inputs, std::int64_t dims)
{
    const Tensor& q = inputs.q;
    const Tensor& k = inputs.k;
    STD_TORCH_CHECK(q.dim() == dims && k.dim() == dims,
                    "q and k have shapes ", describe_shape(q), " and ", describe_shape(k), "; expected ", dims,
                    " dimensions");
    check_dtypes(q, k, inputs.v);
    const bool agree = q.size(dims - 1) == k.size(dims - 1) && (dims == 3 || q.size(0) == k.size(0));
    STD_TORCH_CHECK(agree, "shapes do not agree: q ", describe_shape(q), ", k ", describe_shape(k),
                    "; expected one batch size and head dim");
}

Gradients new_gradients(const BwdInputs& inputs)
{
    return {make_tensor_like(inputs.q), make_tensor_like(inputs.k), make_tensor_like(inputs.k)};
}

// The request but for its extents and options.
BwdRequest make_request(const BwdInputs& inputs, bool deterministic)
{
    const std::int64_t heads_dim = inputs.q.dim() - 2;
    BwdRequest request;
    request.forward.dtype   = dtype_name(inputs.q);
    request.forward.heads_q = inputs.q.size(heads_dim);
    request.forward.heads_k = inputs.k.size(heads_dim);
    request.forward.hdim    = inputs.q.size(heads_dim + 1);
    request.deterministic   = deterministic;
    return request;
}

Tensor run_batch(const BwdInputs& inputs, const Gradients& gradients, const BwdOptions& options)
{
    const Tensor& q = inputs.q;
    CallDevice device(q);
    check_bwd_tensors(inputs, gradients, {q.size(0), q.size(2), q.size(1)});
    BwdRequest request       = make_request(inputs, options.deterministic);
    FwdRequest& forward      = request.forward;
    forward.batch            = q.size(0);
    forward.seqlen_q         = q.size(1);
    forward.seqlen_k         = inputs.k.size(1);
    forward.lse_head_stride  = forward.seqlen_q;
    forward.lse_batch_stride = forward.heads_q * forward.seqlen_q;
    set_options(forward, q, options.forward, device);
    return run_bwd(request, inputs, gradients, device);
}

Tensor run_group(const BwdInputs& inputs,
                 const Gradients& gradients,
                 const SequenceTables& tables,
                 const BwdOptions& options)
{
    const Tensor& q = inputs.q;
    const Tensor& k = inputs.k;
    CallDevice device(q);
    check_bwd_tensors(inputs, gradients, {q.size(1), q.size(0)});
    check_starts(tables.cu_seqlens_q, "cu_seqlens_q", q.size(0), tables.max_seqlen_q, q);
    const std::int64_t starts = tables.cu_seqlens_q.size(0);
    check_starts(tables.cu_seqlens_k, "cu_seqlens_k", k.size(0), tables.max_seqlen_k, q, starts);
    BwdRequest request  = make_request(inputs, options.deterministic);
    FwdRequest& forward = request.forward;
    forward.mode        = Mode::group;
    forward.batch       = starts - 1;
    // No sequence is longer than all of them; larger maxima would only cost launches and parts of dq.
    forward.seqlen_q          = std::min(tables.max_seqlen_q, q.size(0));
    forward.seqlen_k          = std::min(tables.max_seqlen_k, k.size(0));
    forward.lse_head_stride   = q.size(0);
    forward.sequences.start_q = tables.cu_seqlens_q.data_ptr();
    forward.sequences.start_k = tables.cu_seqlens_k.data_ptr();
    device.use(tables.cu_seqlens_q);
    device.use(tables.cu_seqlens_k);
    set_options(forward, q, options.forward, device);
    return run_bwd(request, inputs, gradients, device);
}

Tensor bwd_out(const Tensor& dout,
               const Tensor& q,
               const Tensor& k,
               const Tensor& v,
               const Tensor& out,
               const Tensor& lse,
               const Tensor& dq,
               const Tensor& dk,
               const Tensor& dv,
               const OptionalTensor& alibi_slopes,
               const OptionalTensor& rng_state,
               double softmax_scale,
               std::int64_t window_left,
               std::int64_t window_right,
               double dropout_p,
               bool deterministic)
{
    const BwdInputs inputs{dout, q, k, v, out, lse};
    check_inputs(inputs, 4);
    return run_batch(
        inputs,
        {dq, dk, dv},
        {{softmax_scale, window_left, window_right, 0.0, dropout_p, alibi_slopes, rng_state}, deterministic});
}

BwdResult bwd(const Tensor& dout,
              const Tensor& q,
              const Tensor& k,
              const Tensor& v,
              const Tensor& out,
              const Tensor& lse,
              const OptionalTensor& alibi_slopes,
              const OptionalTensor& rng_state,
              double softmax_scale,
              std::int64_t window_left,
              std::int64_t window_right,
              double dropout_p,
              bool deterministic)
{
    const BwdInputs inputs{dout, q, k, v, out, lse};
    check_inputs(inputs, 4);
    const Gradients made = new_gradients(inputs);
    const Tensor delta   = run_batch(
        inputs,
        made,
        {{softmax_scale, window_left, window_right, 0.0, dropout_p, alibi_slopes, rng_state}, deterministic});
    return {made.dq, made.dk, made.dv, delta};
}

Tensor varlen_bwd_out(const Tensor& dout,
                      const Tensor& q,
                      const Tensor& k,
                      const Tensor& v,
                      const Tensor& out,
                      const Tensor& lse,
                      const Tensor& cu_seqlens_q,
                      const Tensor& cu_seqlens_k,
                      const Tensor& dq,
                      const Tensor& dk,
                      const Tensor& dv,
                      const OptionalTensor& alibi_slopes,
                      const OptionalTensor& rng_state,
                      std::int64_t max_seqlen_q,
                      std::int64_t max_seqlen_k,
                      double softmax_scale,
                      std::int64_t window_left,
                      std::int64_t window_right,
                      double dropout_p,
                      bool deterministic)
{
    const BwdInputs inputs{dout, q, k, v, out, lse};
    check_inputs(inputs, 3);
    return run_group(
        inputs,
        {dq, dk, dv},
        {cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k},
        {{softmax_scale, window_left, window_right, 0.0, dropout_p, alibi_slopes, rng_state}, deterministic});
}

BwdResult varlen_bwd(const Tensor& dout,
                     const Tensor& q,
                     const Tensor& k,
                     const Tensor& v,
                     const Tensor& out,
                     const Tensor& lse,
                     const Tensor& cu_seqlens_q,
                     const Tensor& cu_seqlens_k,
                     const OptionalTensor& alibi_slopes,
                     const OptionalTensor& rng_state,
                     std::int64_t max_seqlen_q,
                     std::int64_t max_seqlen_k,
                     double softmax_scale,
                     std::int64_t window_left,
                     std::int64_t window_right,
                     double dropout_p,
                     bool deterministic)
{
    const BwdInputs inputs{dout, q, k, v, out, lse};
    check_inputs(inputs, 3);
    const Gradients made = new_gradients(inputs);
    const Tensor delta   = run_group(
        inputs,
        made,
        {cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k},
        {{softmax_scale, window_left, window_right, 0.0, dropout_p, alibi_slopes, rng_state}, deterministic});
    return {made.dq, made.dk, made.dv, delta};
}

} // namespace

constinit const BoxedOp bwd_op            = FA_BOX(&bwd);
constinit const BoxedOp bwd_out_op        = FA_BOX(&bwd_out);
constinit const BoxedOp varlen_bwd_op     = FA_BOX(&varlen_bwd);
constinit const BoxedOp varlen_bwd_out_op = FA_BOX(&varlen_bwd_out);

} // namespace flash_attn_rocm
