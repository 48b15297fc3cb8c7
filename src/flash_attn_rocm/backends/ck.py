"""Attention with the Composable Kernel kernels, through the op of the host library."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from flash_attn_rocm import ops
from flash_attn_rocm.errors import KernelUnavailableError

# How the host library marks a request that no installed kernel covers (csrc/host/error.hpp).
_NO_KERNEL = "no installed kernel: "
_NOT_YET = "the CK backend of this version does not implement {}. Set FLASH_ATTN_ROCM_BACKEND=sdpa"


def prepare() -> None:
    """Load the host library, register the op, and make the library follow the environment as it is now.

    Raises:
        LibraryNotFoundError: the library or the emulated runtime is missing.
        BackendChoiceError: other GPUs are to be emulated than when the library was loaded.
    """
    ops.load()
    ops.follow_environment()


def _positive_scale(q: Tensor, softmax_scale: float) -> tuple[Tensor, float]:
    """q and a positive scale with the same product.

    CK multiplies masked scores, which are -inf, by the scale, and takes the row maximum before it does: with a scale
    of 0 or below, its softmax gives NaN.
    """
    if softmax_scale > 0.0:
        return q, softmax_scale
    if softmax_scale < 0.0:
        return -q, -softmax_scale
    return q * 0.0, 1.0


def _refuse_transforms(tensors: tuple[Tensor | None, ...]) -> None:
    """The op's gradients reach torch's autograd alone: under these transforms they would be wrong or missing.

    A torch.func transform wraps its tensors, in several layers where transforms are nested. What tells the wrappers
    apart is private to torch; tests/api/test_transforms.py fails where it changes.
    """
    if not torch._C._are_functorch_transforms_active() and forward_ad._current_level < 0:
        return
    functorch = torch._C._functorch
    for tensor in tensors:
        inner = tensor
        while inner is not None:
            dual = forward_ad._current_level >= 0 and forward_ad.unpack_dual(inner).tangent is not None
            if dual or functorch.is_gradtrackingtensor(inner):
                raise KernelUnavailableError(
                    "the CK backend does not implement torch.func.grad, vjp, jacrev and jvp, nor forward-mode AD. Use "
                    "Tensor.backward or torch.autograd.grad, or set FLASH_ATTN_ROCM_BACKEND=sdpa (for forward mode "
                    "also return_attn_probs=True: torch's fused attention has none)"
                )
            wrapped = functorch.is_functorch_wrapped_tensor(inner)
            inner = functorch.get_unwrapped(inner) if wrapped else None


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    softmax_scale: float,
    window_left: int,
    window_right: int,
    softcap: float,
    dropout_p: float,
    alibi_slopes: Tensor | None,
    rng_state: Tensor | None,
    want_lse: bool,
    want_map: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention of checked arguments: out (B, Sq, H, D), lse float32 (B, H, Sq), dropout map uint8 (B, H, Sq, Sk).

    The map holds random values: a weight is kept iff its value is at most floor(255 * (1 - dropout_p)). It is empty
    without dropout, or unless want_map.

    Raises:
        KernelUnavailableError: no installed kernel has this feature, head dim or dtype; or a torch.func transform is
            active that the op cannot follow.
    """
    del want_lse  # the kernels always write it
    q, softmax_scale = _positive_scale(q, softmax_scale)
    arguments = {
        "softmax_scale": softmax_scale,
        "window_left": window_left,
        "window_right": window_right,
        "softcap": softcap,
        "dropout_p": dropout_p,
        "return_dropout_map": want_map,
    }
    out, lse, random = _call(torch.ops.flash_attn_rocm.fwd, q, k, v, alibi_slopes, rng_state, **arguments)
    return out, lse, random


def _call(op: Any, *tensors: Tensor | None, **arguments: Any) -> Any:
    """Call an op of the host library; what no installed kernel covers becomes a KernelUnavailableError."""
    if torch.compiler.is_compiling():
        return op(*tensors, **arguments)
    _refuse_transforms(tensors)
    try:
        return op(*tensors, **arguments)
    except RuntimeError as error:
        _, marker, reason = str(error).partition(_NO_KERNEL)
        if not marker:
            raise
        raise KernelUnavailableError(reason) from error


def varlen_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    seqused_k: Tensor | None,
    leftpad_k: Tensor | None,
    block_table: Tensor | None,
    softmax_scale: float,
    alibi_slopes: Tensor | None,
    rng_state: Tensor | None,
    want_lse: bool,
    want_map: bool,
    **arguments: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention of checked arguments with sequences of several lengths: out, lse (H, Tq), dropout map (H, Tq, max_k).

    Raises:
        KernelUnavailableError: no installed kernel covers the request, or a gradient is wanted.
    """
    del want_lse
    if leftpad_k is not None:
        raise KernelUnavailableError(_NOT_YET.format("leftpad_k"))
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        raise KernelUnavailableError(_NOT_YET.format("the backward pass of sequences of several lengths"))
    q, softmax_scale = _positive_scale(q, softmax_scale)
    tensors = (q, k, v, cu_seqlens_q, cu_seqlens_k, seqused_k, block_table, alibi_slopes, rng_state)
    op = torch.ops.flash_attn_rocm.varlen_fwd
    out, lse, random = _call(op, *tensors, softmax_scale=softmax_scale, return_dropout_map=want_map, **arguments)
    return out, lse, random


def kvcache_forward(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    *,
    k: Tensor | None,
    v: Tensor | None,
    rotary_cos: Tensor | None,
    rotary_sin: Tensor | None,
    cache_seqlens: Tensor | None,
    cache_batch_idx: Tensor | None,
    cache_leftpad: Tensor | None,
    block_table: Tensor | None,
    alibi_slopes: Tensor | None,
    softmax_scale: float,
    want_lse: bool,
    **arguments: Any,
) -> tuple[Tensor, Tensor]:
    """Attention of checked arguments to a KV cache, which k and v are appended to: out (B, Sq, H, D), lse (B, H, Sq).

    Raises:
        KernelUnavailableError: no installed kernel covers the request.
    """
    del want_lse
    q, softmax_scale = _positive_scale(q, softmax_scale)
    tables = (cache_seqlens, cache_batch_idx, cache_leftpad, block_table, alibi_slopes)
    tensors = (q, k_cache, v_cache, k, v, rotary_cos, rotary_sin, *tables)
    out, lse = _call(torch.ops.flash_attn_rocm.kvcache_fwd, *tensors, softmax_scale=softmax_scale, **arguments)
    return out, lse
