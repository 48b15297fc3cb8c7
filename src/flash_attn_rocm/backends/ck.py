"""Attention with the Composable Kernel kernels, through the ops of the host library."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.graph import increment_version

from flash_attn_rocm import ops
from flash_attn_rocm.errors import KernelUnavailableError

# How the host library marks a request that no installed kernel covers (csrc/host/error.hpp).
_NO_KERNEL = "no installed kernel: "
# Keys that one matrix instruction takes (csrc/torch/page_checks.cpp).
_PAGE_STEP = 16


def prepare() -> None:
    """Load the host library, register the ops, and make the library follow the environment as it is now.

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
    """The ops' gradients reach torch's autograd alone: under these transforms they would be wrong or missing.

    A torch.func transform wraps its tensors, in several layers where transforms are nested. What tells the wrappers
    apart is private to torch; tests/api/test_transforms.py fails where it changes.
    """
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


# Of the ops' schemas (csrc/torch/ops.cpp), where torch looks them up in less time than it takes to read an argument.
_DEFAULTS = {
    "window_left": -1,
    "window_right": -1,
    "softcap": 0.0,
    "dropout_p": 0.0,
    "return_dropout_map": False,
    "num_splits": 0,
    "deterministic": False,
    "rotary_interleaved": True,
}


def _wants_grad(tensors: tuple[Tensor | None, ...]) -> bool:
    if not torch.is_grad_enabled():
        return False
    return any(tensor is not None and tensor.requires_grad for tensor in tensors)


def call(op: Any, tensors: tuple[Tensor | None, ...], **arguments: Any) -> Any:
    """What an op of the host library returns; numbers by name.

    Raises:
        KernelUnavailableError: no installed kernel covers the call; or a torch.func transform is active that the op
            cannot follow.
    """
    if torch.compiler.is_compiling():
        return op(*tensors, **arguments)
    transformed = torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
    if transformed:
        _refuse_transforms(tensors)
    try:
        if not transformed and not _wants_grad(tensors):
            # Autograd's part of an op is Python code of torch, which costs more than the launch.
            given = {name: value for name, value in arguments.items() if _DEFAULTS.get(name) != value}
            with torch._C._AutoDispatchBelowAutograd():
                return op(*tensors, **given)
        return op(*tensors, **arguments)
    except RuntimeError as error:
        _, marker, reason = str(error).partition(_NO_KERNEL)
        if not marker:
            raise
        raise KernelUnavailableError(reason) from error


def _rows_contiguous(tensor: Tensor) -> Tensor:
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous()


def _check_pages(pages: Tensor) -> None:
    if pages.shape[1] % _PAGE_STEP != 0:
        raise KernelUnavailableError(
            f"the page size is {pages.shape[1]}; the CK kernels have multiples of {_PAGE_STEP}. Use such pages, or set "
            "FLASH_ATTN_ROCM_BACKEND=sdpa"
        )


def _without_leftpad(
    cu_seqlens_k: Tensor,
    seqused_k: Tensor | None,
    leftpad_k: Tensor,
    block_table: Tensor | None,
    dropout_p: float,
) -> tuple[Tensor, Tensor]:
    """cu_seqlens_k and seqused_k of the keys that are left without the padding; made on the device, nothing waits.

    In pages that does not work: the kernels multiply whole tiles of values by weights of 0, so that NaN in padding
    slots would reach the output. And the random bytes of dropout go by the number of a key in its sequence.
    """
    if block_table is not None:
        raise KernelUnavailableError(
            "leftpad_k and block_table are both given, which no CK kernel has. Set FLASH_ATTN_ROCM_BACKEND=sdpa, or "
            "leave whole pages of padding out of block_table"
        )
    if dropout_p > 0.0:
        raise KernelUnavailableError(
            "leftpad_k is given with dropout, which no CK kernel has. Set FLASH_ATTN_ROCM_BACKEND=sdpa, or move the "
            "starts in cu_seqlens_k and give seqused_k"
        )
    lengths = (cu_seqlens_k.diff() if seqused_k is None else seqused_k) - leftpad_k
    return torch.cat([cu_seqlens_k[:-1] + leftpad_k, cu_seqlens_k[-1:]]), lengths.clamp(min=0)


def _contiguous(tensor: Tensor | None) -> Tensor | None:
    """Tables of lengths, pages and slopes are read as they lie in memory."""
    return tensor if tensor is None or tensor.is_contiguous() else tensor.contiguous()


def mark_written(*tensors: Tensor) -> None:
    """Let autograd refuse a backward pass that needs what these tensors held before; torch does not do it for C++ ops.

    A compiled caller's tensors are marked by torch, and tensors of inference mode have nothing to mark.
    """
    if not torch.compiler.is_compiling():
        increment_version([tensor for tensor in tensors if not tensor.is_inference()])


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
    deterministic: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention of checked arguments: out (B, Sq, H, D), lse float32 (B, H, Sq), dropout map uint8 (B, H, Sq, Sk).

    The map is empty without dropout, and unless `want_map`.

    Raises:
        KernelUnavailableError: no installed kernel has this feature, head dim or dtype; or a torch.func transform is
            active that the op cannot follow.
    """
    del want_lse  # the kernels always write it
    q, softmax_scale = _positive_scale(q, softmax_scale)
    out, lse, random_map = call(
        torch.ops.flash_attn_rocm.fwd,
        (q, k, v, _contiguous(alibi_slopes), rng_state),
        softmax_scale=softmax_scale,
        window_left=window_left,
        window_right=window_right,
        softcap=softcap,
        dropout_p=dropout_p,
        return_dropout_map=want_map,
        deterministic=deterministic,
    )
    return out, lse, random_map


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
    max_seqlen_q: int,
    max_seqlen_k: int,
    softmax_scale: float,
    window_left: int,
    window_right: int,
    softcap: float,
    dropout_p: float,
    alibi_slopes: Tensor | None,
    rng_state: Tensor | None,
    want_lse: bool,
    want_map: bool,
    num_splits: int,
    deterministic: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention of checked arguments: out (Tq, H, D), lse float32 (H, Tq), dropout map uint8 (H, Tq, max_seqlen_k).

    The map is empty without dropout, and unless `want_map`. Rows that belong to no sequence are undefined.

    Raises:
        KernelUnavailableError: as for `forward`; or leftpad_k is given with a block_table or dropout.
    """
    del want_lse
    if leftpad_k is not None:
        cu_seqlens_k, seqused_k = _without_leftpad(cu_seqlens_k, seqused_k, leftpad_k, block_table, dropout_p)
    if block_table is not None:
        _check_pages(k)
    q, softmax_scale = _positive_scale(q, softmax_scale)
    out, lse, random_map = call(
        torch.ops.flash_attn_rocm.varlen_fwd,
        (
            q,
            k,
            v,
            _contiguous(cu_seqlens_q),
            _contiguous(cu_seqlens_k),
            _contiguous(seqused_k),
            _contiguous(block_table),
            _contiguous(alibi_slopes),
            rng_state,
        ),
        max_seqlen_q=max_seqlen_q,
        max_seqlen_k=max_seqlen_k,
        softmax_scale=softmax_scale,
        window_left=window_left,
        window_right=window_right,
        softcap=softcap,
        dropout_p=dropout_p,
        return_dropout_map=want_map,
        num_splits=num_splits if dropout_p == 0.0 else 1,  # dropout needs the keys in one part
        deterministic=deterministic,
    )
    return out, lse, random_map


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
    softmax_scale: float,
    window_left: int,
    window_right: int,
    softcap: float,
    rotary_interleaved: bool,
    alibi_slopes: Tensor | None,
    num_splits: int,
    want_lse: bool,
) -> tuple[Tensor, Tensor]:
    """Attention of checked arguments to a KV cache: out (B, Sq, H, D), lse float32 (B, H, Sq).

    Raises:
        KernelUnavailableError: as for `forward`.
    """
    del want_lse
    if block_table is not None:
        _check_pages(k_cache)
        if cache_leftpad is not None:
            raise KernelUnavailableError(
                "cache_leftpad and block_table are both given, which no CK kernel has. Set "
                "FLASH_ATTN_ROCM_BACKEND=sdpa, or leave whole pages of padding out of block_table"
            )
    for name, cache in (("k_cache", k_cache), ("v_cache", v_cache)):
        if _rows_contiguous(cache) is not cache:
            raise KernelUnavailableError(
                f"{name} has stride {cache.stride(-1)} in its last dimension; the CK kernels have 1 only, and a cache "
                "is not copied. Lay it out anew, or set FLASH_ATTN_ROCM_BACKEND=sdpa"
            )
        if block_table is None and cache.shape[1] > 1 and cache.stride(1) == 0:
            raise KernelUnavailableError(
                f"{name} is expanded along its slots (stride 0); the CK kernels find sequences by whole rows. Lay it "
                "out anew, or set FLASH_ATTN_ROCM_BACKEND=sdpa"
            )
    q, softmax_scale = _positive_scale(_rows_contiguous(q), softmax_scale)
    out, lse = call(
        torch.ops.flash_attn_rocm.kvcache_fwd,
        (
            q,
            k_cache,
            v_cache,
            k,
            v,
            _contiguous(rotary_cos),
            _contiguous(rotary_sin),
            _contiguous(cache_seqlens),
            _contiguous(cache_batch_idx),
            _contiguous(cache_leftpad),
            _contiguous(block_table),
            _contiguous(alibi_slopes),
        ),
        softmax_scale=softmax_scale,
        window_left=window_left,
        window_right=window_right,
        softcap=softcap,
        rotary_interleaved=rotary_interleaved,
        num_splits=num_splits,
    )
    if k is not None:
        mark_written(k_cache, v_cache)
    return out, lse
