// Schemas and registration of the torch ops, through the LibTorch Stable ABI.
#include <torch/csrc/stable/library.h>

#include "fwd.hpp"
#include "torch_runtime.hpp"

STABLE_TORCH_LIBRARY(flash_attn_rocm, library)
{
    flash_attn_rocm::announce_torch();
    // alibi_slopes is positional: torch.library.register_autograd refuses keyword-only tensors.
    library.def("fwd(Tensor q, Tensor k, Tensor v, Tensor? alibi_slopes=None, *, float softmax_scale, "
                "int window_left=-1, int window_right=-1, float softcap=0., float dropout_p=0.) "
                "-> (Tensor out, Tensor lse)");
}

// "CUDA" is the dispatch key of AMD GPUs in a ROCm build of torch.
STABLE_TORCH_LIBRARY_IMPL(flash_attn_rocm, CUDA, library) { library.impl("fwd", TORCH_BOX(&flash_attn_rocm::fwd)); }

// CPU tensors run on the emulated GPU.
STABLE_TORCH_LIBRARY_IMPL(flash_attn_rocm, CPU, library) { library.impl("fwd", TORCH_BOX(&flash_attn_rocm::fwd)); }
