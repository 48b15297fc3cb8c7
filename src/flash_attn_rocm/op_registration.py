"""What the C++ ops cannot bring along: fake implementations and autograd, registered when the library is loaded.

There is no CK backward yet: gradients come from computing the same attention again with torch operations, which have
the same semantics, so that training is right, at the cost of one more forward pass. The random state makes them drop
the same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from flash_attn_rocm.backends import sdpa, sdpa_varlen
from flash_attn_rocm.errors import KernelUnavailableError

_NAMESPACE = "flash_attn_rocm"


def register() -> None:
    """Complete the ops of the library that was just loaded."""
    torch.library.register_fake(f"{_NAMESPACE}::fwd", _fake_fwd)
    torch.library.register_autograd(f"{_NAMESPACE}::fwd", _fwd_backward, setup_context=_save_for_backward)
    torch.library.register_fake(f"{_NAMESPACE}::varlen_fwd", _fake_varlen_fwd)
    torch.library.register_autograd(f"{_NAMESPACE}::varlen_fwd", _varlen_backward, setup_context=_save_for_backward)
    torch.library.register_fake(f"{_NAMESPACE}::kvcache_fwd", _fake_kvcache_fwd)


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


def _save_for_backward(ctx: Any, inputs: Any, keyword_only_inputs: dict[str, Any], output: Any) -> None:
    ctx.save_for_backward(*inputs)
    ctx.arguments = {key: value for key, value in keyword_only_inputs.items() if key != "return_dropout_map"}
    # An lse that nobody differentiates must come as None: zeros would cost the O(S^2) float32 path.
    ctx.set_materialize_grads(False)


def _gradients(
    forward: Callable[..., tuple[Tensor, Tensor, Tensor]],
    tensors: Sequence[Tensor],
    arguments: dict[str, Any],
    grad_out: Tensor | None,
    grad_lse: Tensor | None,
) -> tuple[Tensor | None, ...]:
    """Gradients of q, k and v from computing out and lse again."""
    if grad_out is None and grad_lse is None:
        return (None,) * 3
    # Autograd enables gradients here iff these gradients are to be differentiated again (create_graph). Then they
    # must depend on the saved tensors themselves, and be made of operations that have second derivatives, which
    # torch's fused attention lacks.
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        leaves = [
            tensor.view_as(tensor) if again and tensor.requires_grad else tensor.detach().requires_grad_()
            for tensor in tensors
        ]
        out, lse, _ = forward(*leaves, **arguments, want_lse=again or grad_lse is not None)
        pairs = [(o, g) for o, g in ((out, grad_out), (lse, grad_lse)) if g is not None]
        outputs, grads = [o for o, _ in pairs], [g for _, g in pairs]
        # v has no part in lse: zeros for it.
        return (*torch.autograd.grad(outputs, leaves, grads, create_graph=again, materialize_grads=True),)


def _fwd_backward(
    ctx: Any, grad_out: Tensor | None, grad_lse: Tensor | None, grad_map: None
) -> tuple[Tensor | None, ...]:
    *tensors, alibi_slopes, rng_state = ctx.saved_tensors
    arguments = ctx.arguments | {"alibi_slopes": alibi_slopes, "rng_state": rng_state}
    return (*_gradients(sdpa.forward, tensors, arguments, grad_out, grad_lse), None, None)


def _varlen_backward(
    ctx: Any, grad_out: Tensor | None, grad_lse: Tensor | None, grad_map: None
) -> tuple[Tensor | None, ...]:
    q, k, v, *tables = ctx.saved_tensors
    names = ("cu_seqlens_q", "cu_seqlens_k", "seqused_k", "block_table", "alibi_slopes", "rng_state")
    arguments = ctx.arguments | dict(zip(names, tables, strict=True)) | {"leftpad_k": None}
    return (*_gradients(sdpa_varlen.forward, (q, k, v), arguments, grad_out, grad_lse), *[None] * len(names))
