// The torch ops of backward: from tensors to a request.
#include "bwd.hpp"

#include <algorithm>

#include <torch/csrc/stable/ops.h>

#include "bwd_run.hpp"

namespace flash_attn_rocm {
namespace {

struct Options
{
    double softmax_scale;
    std::int64_t window_left;
    std::int64_t window_right;
    double dropout_p;
    bool deterministic;
};

using OptionalTensor = std::optional<Tensor>;

// q, k and v of (batch, seqlen, nheads, headdim), or without the batch and of sequences one after the other.
void check_inputs(const Tensor& q, const Tensor& k, const Tensor& v, std::int64_t dims)
{
    STD_TORCH_CHECK(q.dim() == dims && k.dim() == dims,
                    "q and k have shapes ", describe_shape(q), " and ", describe_shape(k), "; expected ", dims,
                    " dimensions");
    check_dtypes(q, k, v);
    const bool agree = q.size(dims - 1) == k.size(dims - 1) && (dims == 3 || q.size(0) == k.size(0));
    STD_TORCH_CHECK(agree, "shapes do not agree: q ", describe_shape(q), ", k ", describe_shape(k),
                    "; expected one batch size and head dim");
}

// The request but for its extents and optional tensors.
BwdRequest make_request(const Tensor& q, const Tensor& k, const Options& options)
{
    const std::int64_t row = q.dim() - 3;
    BwdRequest request;
    FwdRequest& forward   = request.forward;
    forward.dtype         = q.scalar_type() == ScalarType::Half ? "fp16" : "bf16";
    forward.heads_q       = q.size(row + 1);
    forward.heads_k       = k.size(row + 1);
    forward.hdim          = q.size(row + 2);
    forward.softmax_scale = options.softmax_scale;
    forward.window_left   = options.window_left;
    forward.window_right  = options.window_right;
    forward.dropout.p     = options.dropout_p;
    request.deterministic = options.deterministic;
    return request;
}

Tensor run_batch(const BwdTensors& tensors,
                 const OptionalTensor& alibi_slopes,
                 const OptionalTensor& rng_state,
                 const Options& options)
{
    const Tensor& q = tensors.q;
    const Tensor& k = tensors.k;
    check_inputs(q, k, tensors.v, 4);
    check_device(q);
    const CurrentDevice current(q);
    check_bwd_tensors(tensors, {q.size(0), q.size(2), q.size(1)});
    BwdRequest request       = make_request(q, k, options);
    FwdRequest& forward      = request.forward;
    forward.batch            = q.size(0);
    forward.seqlen_q         = q.size(1);
    forward.seqlen_k         = k.size(1);
    forward.lse_head_stride  = forward.seqlen_q;
    forward.lse_batch_stride = forward.heads_q * forward.seqlen_q;
    std::vector<Tensor> used;
    set_features(forward, q, alibi_slopes, rng_state, used);
    return run_bwd(request, tensors, used);
}

Tensor run_group(const BwdTensors& tensors,
                 const Tensor& cu_seqlens_q,
                 const Tensor& cu_seqlens_k,
                 std::int64_t max_seqlen_q,
                 std::int64_t max_seqlen_k,
                 const OptionalTensor& alibi_slopes,
                 const OptionalTensor& rng_state,
                 const Options& options)
{
    const Tensor& q = tensors.q;
    check_inputs(q, tensors.k, tensors.v, 3);
    check_device(q);
    const CurrentDevice current(q);
    check_bwd_tensors(tensors, {q.size(1), q.size(0)});
    check_starts(cu_seqlens_q, "cu_seqlens_q", q.size(0), max_seqlen_q, q);
    check_starts(cu_seqlens_k, "cu_seqlens_k", tensors.k.size(0), max_seqlen_k, q, cu_seqlens_q.size(0));
    BwdRequest request        = make_request(q, tensors.k, options);
    FwdRequest& forward       = request.forward;
    forward.mode              = Mode::group;
    forward.batch             = cu_seqlens_q.size(0) - 1;
    // No sequence is longer than all of them; larger maxima would only cost launches and parts of dq.
    forward.seqlen_q          = std::min(max_seqlen_q, q.size(0));
    forward.seqlen_k          = std::min(max_seqlen_k, tensors.k.size(0));
    forward.lse_head_stride   = q.size(0);
    forward.sequences.start_q = cu_seqlens_q.data_ptr();
    forward.sequences.start_k = cu_seqlens_k.data_ptr();
    std::vector<Tensor> used  = {cu_seqlens_q, cu_seqlens_k};
    set_features(forward, q, alibi_slopes, rng_state, used);
    return run_bwd(request, tensors, used);
}

BwdTensors with_new_gradients(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse)
{
    return {dout,
            q,
            k,
            v,
            out,
            lse,
            make_tensor_like(q),
            make_tensor_like(k),
            make_tensor_like(v)};
}

} // namespace

Tensor bwd_out(Tensor dout,
               Tensor q,
               Tensor k,
               Tensor v,
               Tensor out,
               Tensor lse,
               Tensor dq,
               Tensor dk,
               Tensor dv,
               std::optional<Tensor> alibi_slopes,
               std::optional<Tensor> rng_state,
               double softmax_scale,
               std::int64_t window_left,
               std::int64_t window_right,
               double dropout_p,
               bool deterministic)
{
    return run_batch({dout, q, k, v, out, lse, dq, dk, dv},
                     alibi_slopes,
                     rng_state,
                     {softmax_scale, window_left, window_right, dropout_p, deterministic});
}

BwdResult bwd(Tensor dout,
              Tensor q,
              Tensor k,
              Tensor v,
              Tensor out,
              Tensor lse,
              std::optional<Tensor> alibi_slopes,
              std::optional<Tensor> rng_state,
              double softmax_scale,
              std::int64_t window_left,
              std::int64_t window_right,
              double dropout_p,
              bool deterministic)
{
    const BwdTensors tensors = with_new_gradients(dout, q, k, v, out, lse);
    const Tensor delta       = run_batch(tensors,
                                   alibi_slopes,
                                   rng_state,
                                   {softmax_scale, window_left, window_right, dropout_p, deterministic});
    return {tensors.dq, tensors.dk, tensors.dv, delta};
}

Tensor varlen_bwd_out(Tensor dout,
                      Tensor q,
                      Tensor k,
                      Tensor v,
                      Tensor out,
                      Tensor lse,
                      Tensor cu_seqlens_q,
                      Tensor cu_seqlens_k,
                      Tensor dq,
                      Tensor dk,
                      Tensor dv,
                      std::optional<Tensor> alibi_slopes,
                      std::optional<Tensor> rng_state,
                      std::int64_t max_seqlen_q,
                      std::int64_t max_seqlen_k,
                      double softmax_scale,
                      std::int64_t window_left,
                      std::int64_t window_right,
                      double dropout_p,
                      bool deterministic)
{
    return run_group({dout, q, k, v, out, lse, dq, dk, dv},
                     cu_seqlens_q,
                     cu_seqlens_k,
                     max_seqlen_q,
                     max_seqlen_k,
                     alibi_slopes,
                     rng_state,
                     {softmax_scale, window_left, window_right, dropout_p, deterministic});
}

BwdResult varlen_bwd(Tensor dout,
                     Tensor q,
                     Tensor k,
                     Tensor v,
                     Tensor out,
                     Tensor lse,
                     Tensor cu_seqlens_q,
                     Tensor cu_seqlens_k,
                     std::optional<Tensor> alibi_slopes,
                     std::optional<Tensor> rng_state,
                     std::int64_t max_seqlen_q,
                     std::int64_t max_seqlen_k,
                     double softmax_scale,
                     std::int64_t window_left,
                     std::int64_t window_right,
                     double dropout_p,
                     bool deterministic)
{
    const BwdTensors tensors = with_new_gradients(dout, q, k, v, out, lse);
    const Tensor delta       = run_group(tensors,
                                   cu_seqlens_q,
                                   cu_seqlens_k,
                                   max_seqlen_q,
                                   max_seqlen_k,
                                   alibi_slopes,
                                   rng_state,
                                   {softmax_scale, window_left, window_right, dropout_p, deterministic});
    return {tensors.dq, tensors.dk, tensors.dv, delta};
}

} // namespace flash_attn_rocm
