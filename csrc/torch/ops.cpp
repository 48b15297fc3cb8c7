// Schemas and registration of the torch ops, through the LibTorch Stable ABI.
#include "ops.hpp"

#include "torch_runtime.hpp"

STABLE_TORCH_LIBRARY(flash_attn_rocm, library)
{
    flash_attn_rocm::announce_torch();
    // Optional tensors are positional: torch.library.register_autograd refuses keyword-only ones.
    library.def("fwd(Tensor q, Tensor k, Tensor v, Tensor? alibi_slopes=None, Tensor? rng_state=None, *, "
                "float softmax_scale, int window_left=-1, int window_right=-1, float softcap=0., "
                "float dropout_p=0., bool return_dropout_map=False, bool deterministic=False) "
                "-> (Tensor out, Tensor lse, Tensor dropout_map)");
    library.def("varlen_fwd(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens_q, Tensor cu_seqlens_k, "
                "Tensor? seqused_k=None, Tensor? block_table=None, Tensor? alibi_slopes=None, Tensor? rng_state=None, "
                "*, int max_seqlen_q, int max_seqlen_k, float softmax_scale, int window_left=-1, int window_right=-1, "
                "float softcap=0., float dropout_p=0., bool return_dropout_map=False, int num_splits=0, "
                "bool deterministic=False) "
                "-> (Tensor out, Tensor lse, Tensor dropout_map)");
    library.def("kvcache_fwd(Tensor q, Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor? k=None, Tensor? v=None, "
                "Tensor? rotary_cos=None, Tensor? rotary_sin=None, Tensor? cache_seqlens=None, "
                "Tensor? cache_batch_idx=None, Tensor? cache_leftpad=None, Tensor? block_table=None, "
                "Tensor? alibi_slopes=None, *, float softmax_scale, int window_left=-1, int window_right=-1, "
                "float softcap=0., bool rotary_interleaved=True, int num_splits=0) -> (Tensor out, Tensor lse)");
    library.def("bwd(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, Tensor? alibi_slopes=None, "
                "Tensor? rng_state=None, *, float softmax_scale, int window_left=-1, int window_right=-1, "
                "float dropout_p=0., bool deterministic=False) "
                "-> (Tensor dq, Tensor dk, Tensor dv, Tensor softmax_d)");
    library.def("bwd_out(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, Tensor(a!) dq, "
                "Tensor(b!) dk, Tensor(c!) dv, Tensor? alibi_slopes=None, Tensor? rng_state=None, *, "
                "float softmax_scale, int window_left=-1, int window_right=-1, float dropout_p=0., "
                "bool deterministic=False) -> Tensor softmax_d");
    library.def("varlen_bwd(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, Tensor cu_seqlens_q, "
                "Tensor cu_seqlens_k, Tensor? alibi_slopes=None, Tensor? rng_state=None, *, int max_seqlen_q, "
                "int max_seqlen_k, float softmax_scale, int window_left=-1, int window_right=-1, "
                "float dropout_p=0., bool deterministic=False) "
                "-> (Tensor dq, Tensor dk, Tensor dv, Tensor softmax_d)");
    library.def("varlen_bwd_out(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, "
                "Tensor cu_seqlens_q, Tensor cu_seqlens_k, Tensor(a!) dq, Tensor(b!) dk, Tensor(c!) dv, "
                "Tensor? alibi_slopes=None, Tensor? rng_state=None, *, int max_seqlen_q, int max_seqlen_k, "
                "float softmax_scale, int window_left=-1, int window_right=-1, float dropout_p=0., "
                "bool deterministic=False) -> Tensor softmax_d");
}

namespace {

template <class Library>
void implement_ops(Library& library)
{
    library.impl("fwd", flash_attn_rocm::fwd_op);
    library.impl("varlen_fwd", flash_attn_rocm::varlen_fwd_op);
    library.impl("kvcache_fwd", flash_attn_rocm::kvcache_fwd_op);
    library.impl("bwd", flash_attn_rocm::bwd_op);
    library.impl("bwd_out", flash_attn_rocm::bwd_out_op);
    library.impl("varlen_bwd", flash_attn_rocm::varlen_bwd_op);
    library.impl("varlen_bwd_out", flash_attn_rocm::varlen_bwd_out_op);
}

} // namespace

// "CUDA" is the dispatch key of AMD GPUs in a ROCm build of torch.
STABLE_TORCH_LIBRARY_IMPL(flash_attn_rocm, CUDA, library) { implement_ops(library); }

// CPU tensors run on the emulated GPU.
STABLE_TORCH_LIBRARY_IMPL(flash_attn_rocm, CPU, library) { implement_ops(library); }
