// From a caller's options to the fields of a request.
#include "options.hpp"

#include "../host/checks.hpp"

namespace flash_attn_rocm {
namespace {

void set_alibi(FwdRequest& request, const Tensor& slopes, const Tensor& q)
{
    const bool per_batch = slopes.dim() == 2;
    const bool fits      = (slopes.dim() == 1 || (per_batch && slopes.size(0) == request.batch)) &&
                      slopes.size(slopes.dim() - 1) == request.heads_q;
    STD_TORCH_CHECK(fits,
                    "alibi_slopes has shape ", describe_shape(slopes), "; expected (", request.heads_q, ") or (",
                    request.batch, ", ", request.heads_q, ")");
    STD_TORCH_CHECK(slopes.scalar_type() == ScalarType::Float,
                    "alibi_slopes has dtype ", torch::headeronly::toString(slopes.scalar_type()), "; expected Float");
    STD_TORCH_CHECK(last_dim_contiguous(slopes), "alibi_slopes is not contiguous along the heads");
    check_place(slopes, "alibi_slopes", q);
    request.alibi_slopes       = slopes.data_ptr();
    request.alibi_batch_stride = per_batch ? slopes.stride(0) : 0;
}

void set_rng_state(FwdRequest& request, const Tensor& rng_state, const Tensor& q)
{
    STD_TORCH_CHECK(rng_state.numel() == 2 && rng_state.scalar_type() == ScalarType::Long && rng_state.is_contiguous(),
                    "rng_state has shape ", describe_shape(rng_state), " and dtype ",
                    torch::headeronly::toString(rng_state.scalar_type()), "; expected (2) int64: seed and offset");
    check_place(rng_state, "rng_state", q);
    request.dropout.rng_state = rng_state.data_ptr();
}

} // namespace

void set_options(FwdRequest& request, const Tensor& q, const Options& options, CallDevice& device)
{
    request.softmax_scale = options.softmax_scale;
    request.window_left   = options.window_left;
    request.window_right  = options.window_right;
    request.softcap       = options.softcap;
    request.dropout.p     = options.dropout_p;
    if(options.alibi_slopes)
    {
        set_alibi(request, *options.alibi_slopes, q);
        device.use(options.alibi_slopes);
    }
    if(options.rng_state && options.dropout_p > 0.0)
    {
        set_rng_state(request, *options.rng_state, q);
        device.use(options.rng_state);
    }
    check_fwd_request(request);
}

} // namespace flash_attn_rocm
