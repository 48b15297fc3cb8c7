"""What the C++ ops cannot bring along: fake implementations and autograd, registered when the library is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from flash_attn_rocm.errors import KernelUnavailableError

_NAMESPACE = "flash_attn_rocm"


def register() -> None:
    """Complete the ops of the library that was just loaded."""
    from flash_attn_rocm import autograd  # here: it needs the backends, which need this module, and takes time

    torch.library.register_fake(f"{_NAMESPACE}::fwd", _fake_fwd)
    torch.library.register_fake(f"{_NAMESPACE}::varlen_fwd", _fake_varlen_fwd)
    torch.library.register_fake(f"{_NAMESPACE}::kvcache_fwd", _fake_kvcache_fwd)
    autograd.register()


def _check_fake(*tensors: Tensor | None) -> None:
    # A compiled call inside forward-mode AD: torch.compile traces it anew there (it guards on the dual level), and
    # backends/ck.py cannot look at tensors that are being traced. Without this the tangents would be zeros.
    if forward_ad._current_level >= 0:
        raise KernelUnavailableError(
            "the CK backend does not implement forward-mode AD (torch.func.jvp). Set FLASH_ATTN_ROCM_BACKEND=sdpa and "
            "return_attn_probs=True: torch's fused attention has none either"
        )
    # One tensor on "meta" is enough to be sent here; without this check the others' results would be uninitialised.
    devices = {tensor.device for tensor in tensors if tensor is not None}
    torch._check(len(devices) == 1, lambda: "q, k and v must be on one device, with every other tensor")


def _map_shape(dropout_p: float, wanted: bool, shape: Sequence[int]) -> Sequence[int]:
    return shape if wanted and dropout_p > 0.0 else (0,)


def _fake_fwd(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    alibi_slopes: Tensor | None = None,
    rng_state: Tensor | None = None,
    *,
    softmax_scale: float,
    window_left: int = -1,
    window_right: int = -1,
    softcap: float = 0.0,
    dropout_p: float = 0.0,
    return_dropout_map: bool = False,
    deterministic: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    _check_fake(q, k, v)
    batch, seqlen_q, heads, _ = q.shape
    return (
        q.new_empty(q.shape),
        q.new_empty((batch, heads, seqlen_q), dtype=torch.float32),
        q.new_empty(_map_shape(dropout_p, return_dropout_map, (batch, heads, seqlen_q, k.shape[1])), dtype=torch.uint8),
    )


def _fake_varlen_fwd(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    rng_state: Tensor | None = None,
    *,
    max_seqlen_q: int,
    max_seqlen_k: int,
    softmax_scale: float,
    window_left: int = -1,
    window_right: int = -1,
    softcap: float = 0.0,
    dropout_p: float = 0.0,
    return_dropout_map: bool = False,
    num_splits: int = 0,
    deterministic: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    _check_fake(q, k, v, cu_seqlens_q, cu_seqlens_k)
    total, heads, _ = q.shape
    return (
        q.new_empty(q.shape),
        q.new_empty((heads, total), dtype=torch.float32),
        q.new_empty(_map_shape(dropout_p, return_dropout_map, (heads, total, max_seqlen_k)), dtype=torch.uint8),
    )


def _fake_kvcache_fwd(q: Tensor, k_cache: Tensor, v_cache: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
    _check_fake(q, k_cache, v_cache)
    batch, seqlen_q, heads, _headdim = q.shape
    return q.new_empty(q.shape), q.new_empty((batch, heads, seqlen_q), dtype=torch.float32)
