"""Connects the gradients to torch's autograd, and says what the backward ops return without running them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from flash_attn_rocm.gradients import Call, by_kernels, by_recomputing, kernels_cover

_NOT_OF_THE_OPS = ("return_dropout_map", "num_splits", "softcap", "deterministic")


def _save(ctx: Any, tensors: tuple[Tensor | None, ...], arguments: dict[str, Any], inputs: int) -> None:
    ctx.save_for_backward(*tensors)
    ctx.inputs = inputs
    ctx.options = {name: value for name, value in arguments.items() if name not in _NOT_OF_THE_OPS}
    ctx.softcap, ctx.deterministic = arguments["softcap"], arguments["deterministic"]
    # An lse that nobody differentiates must come as None: zeros would cost the O(S^2) float32 path.
    ctx.set_materialize_grads(False)


def save_batch(ctx: Any, inputs: Any, keyword_only_inputs: dict[str, Any], output: Any) -> None:
    """Keep what the gradients of fwd need."""
    q, k, v, alibi_slopes, rng_state = inputs
    out, lse, _ = output
    _save(ctx, (q, k, v, out, lse, alibi_slopes, rng_state, None, None, None, None), keyword_only_inputs, len(inputs))


def save_varlen(ctx: Any, inputs: Any, keyword_only_inputs: dict[str, Any], output: Any) -> None:
    """Keep what the gradients of varlen_fwd need."""
    q, k, v, cu_seqlens_q, cu_seqlens_k, seqused_k, block_table, alibi_slopes, rng_state = inputs
    out, lse, _ = output
    tensors = (q, k, v, out, lse, alibi_slopes, rng_state, cu_seqlens_q, cu_seqlens_k, seqused_k, block_table)
    _save(ctx, tensors, keyword_only_inputs, len(inputs))


def backward(ctx: Any, grad_out: Tensor | None, grad_lse: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    """Gradients of q, k and v; none of the other inputs."""
    if grad_out is None and grad_lse is None:
        return tuple([None] * ctx.inputs)
    q, k, v, out, lse, alibi_slopes, rng_state, cu_seqlens_q, cu_seqlens_k, *tables = ctx.saved_tensors
    sequences = None if cu_seqlens_q is None else (cu_seqlens_q, cu_seqlens_k)
    options, softcap, ordered = ctx.options, ctx.softcap, ctx.deterministic
    call = Call(q, k, v, out, lse, alibi_slopes, rng_state, sequences, options, softcap, ordered, *tables)
    # Autograd enables gradients here iff these gradients are to be differentiated again (create_graph). Only torch
    # operations have second derivatives, and only they differentiate lse. Where no kernel covers the call, torch's
    # fused attention takes less memory than first_order would.
    if grad_out is not None and grad_lse is None and not torch.is_grad_enabled() and kernels_cover(call):
        dq, dk, dv, _ = by_kernels(call, grad_out)
        grads: tuple[Tensor, ...] = (dq, dk, dv)
    else:
        grads = by_recomputing(call, grad_out, grad_lse)
    return (*grads, *[None] * (ctx.inputs - len(grads)))


def _fake_bwd(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *others: Any, **options: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape), lse.new_empty(lse.shape)


def _fake_bwd_out(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *others: Any, **options: Any
) -> Tensor:
    return lse.new_empty(lse.shape)


def register() -> None:
    """Give the host library's ops their gradients and fakes; once, after the library is loaded."""
    for op, save in (("fwd", save_batch), ("varlen_fwd", save_varlen)):
        torch.library.register_autograd(f"flash_attn_rocm::{op}", backward, setup_context=save)
    for prefix in ("", "varlen_"):
        torch.library.register_fake(f"flash_attn_rocm::{prefix}bwd", _fake_bwd)
        torch.library.register_fake(f"flash_attn_rocm::{prefix}bwd_out", _fake_bwd_out)
