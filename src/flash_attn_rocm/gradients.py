"""Gradients of attention: CK's backward kernels where policy and kernels allow them, torch operations elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flash_attn_rocm import backends
from flash_attn_rocm.backends import ck_backward, sdpa, sdpa_backward, sdpa_varlen


@dataclass(frozen=True)
class Call:
    """A forward call: its tensors and what it was asked for.

    q, out (B, Sq, H, D), k, v (B, Sk, Hk, D), lse (B, H, Sq); or with `sequences`, cu_seqlens_q and cu_seqlens_k,
    (rows, H, D) and (H, rows). `options`: softmax_scale, window_left, window_right, dropout_p, and the two max_seqlen.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    out: Tensor
    lse: Tensor
    alibi_slopes: Tensor | None
    rng_state: Tensor | None
    sequences: tuple[Tensor, Tensor] | None
    options: dict[str, Any]
    softcap: float
    deterministic: bool
    seqused_k: Tensor | None = None
    block_table: Tensor | None = None

    @property
    def ordered(self) -> bool:
        """Whether the kernels must add in a fixed order: the caller or torch.use_deterministic_algorithms wants it."""
        return self.deterministic or torch.are_deterministic_algorithms_enabled()


def _longest(call: Call) -> int:
    if call.sequences is None:
        return max(int(call.q.shape[1]), int(call.k.shape[1]))
    return max(int(call.options["max_seqlen_q"]), int(call.options["max_seqlen_k"]))


def kernels_cover(call: Call) -> bool:
    """Whether the policy of the GPU wants CK's backward kernels for this call and one is installed."""
    manifest = backends.backward_kernels(call.q.device.type, call.q.device.index)
    return (
        manifest is not None
        and call.softcap == 0.0
        and call.seqused_k is None
        and call.block_table is None
        and call.options["softmax_scale"] > 0.0
        and ck_backward.covers(
            manifest,
            mode="batch" if call.sequences is None else "group",
            dtype=call.q.dtype,
            hdim=int(call.q.shape[-1]),
            longest=0 if call.alibi_slopes is None else _longest(call),
            masked=call.options["window_left"] >= 0 or call.options["window_right"] >= 0,
            alibi=call.alibi_slopes is not None,
            dropout=call.options["dropout_p"] > 0.0,
            deterministic=call.ordered,
        )
    )


def by_kernels(
    call: Call, dout: Tensor, targets: tuple[Tensor | None, ...] = (None, None, None)
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What `first_order` gives, from CK's kernels, of a call that `kernels_cover`."""
    return ck_backward.gradients(
        (dout, call.q, call.k, call.v, call.out),
        call.lse,
        call.sequences,
        call.alibi_slopes,
        call.rng_state,
        targets,
        deterministic=call.ordered,
        **call.options,
    )


def first_order(
    call: Call, dout: Tensor, targets: tuple[Tensor | None, ...] = (None, None, None)
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """dq, dk, dv, and softmax_d = sum(dout * out), float32, from the call's own out and lse.

    The kernels write into those of `targets` (dq, dk, dv) that are given, and these are returned.
    """
    if kernels_cover(call):
        return by_kernels(call, dout, targets)
    options = dict(call.options)
    window = (options.pop("window_left"), options.pop("window_right"))
    tensors = (dout, call.q, call.k, call.v, call.out, call.lse)
    options |= {"softcap": call.softcap, "alibi_slopes": call.alibi_slopes, "rng_state": call.rng_state}
    if call.sequences is None:
        dq, dk, dv, softmax_d = sdpa_backward.backward(*tensors, window=window, **options)
    else:
        cu_seqlens_q, cu_seqlens_k = call.sequences
        dq, dk, dv, softmax_d = sdpa_backward.varlen_backward(
            *tensors, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, window=window, **options
        )
    dtype = call.q.dtype
    return dq.to(dtype), dk.to(dtype), dv.to(dtype), softmax_d


def by_recomputing(call: Call, grad_out: Tensor | None, grad_lse: Tensor | None) -> tuple[Tensor, ...]:
    """dq, dk, dv by the same attention again, at the cost of one more forward pass; differentiable themselves."""
    again = torch.is_grad_enabled()
    options = {
        **call.options,
        "softcap": call.softcap,
        "alibi_slopes": call.alibi_slopes,
        "rng_state": call.rng_state,
        "want_lse": again or grad_lse is not None,
        "want_map": False,
    }
    with torch.enable_grad():
        # Second derivatives must depend on the saved tensors themselves, and be made of operations that have them,
        # which torch's fused attention lacks.
        leaves = [
            tensor.view_as(tensor) if again and tensor.requires_grad else tensor.detach().requires_grad_()
            for tensor in (call.q, call.k, call.v)
        ]
        if call.sequences is None:
            out, lse, _ = sdpa.forward(*leaves, **options)
        else:
            cu_seqlens_q, cu_seqlens_k = call.sequences
            options |= {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k, "num_splits": 0}
            options |= {"seqused_k": call.seqused_k, "block_table": call.block_table, "leftpad_k": None}
            out, lse, _ = sdpa_varlen.forward(*leaves, **options)
        pairs = [(o, g) for o, g in ((out, grad_out), (lse, grad_lse)) if g is not None]
        outputs, grads = [o for o, _ in pairs], [g for _, g in pairs]
        # v has no part in lse: zeros for it.
        return tuple(torch.autograd.grad(outputs, leaves, grads, create_graph=again, materialize_grads=True))
