"""Runs a verification case of the backward kernels: dq, dk and dv of every sequence against float64 autograd."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from flash_attn_rocm import ops, reference
from flash_attn_rocm.backends import ck_backward
from flash_attn_rocm.verification.cases import Case
from flash_attn_rocm.verification.features import (
    arguments_of,
    lengths_of,
    normal,
    on_device,
    scoring_of,
    slopes_of,
    starts_of,
)


@dataclass(frozen=True)
class _Call:
    """A call on the CPU; the rows of all sequences one after the other, which in batch mode have one length."""

    q: Tensor  # (rows, nheads, headdim)
    k: Tensor
    v: Tensor
    dout: Tensor
    slopes: Tensor | None
    starts_q: Tensor
    starts_k: Tensor


def _draw(case: Case) -> _Call:
    lengths_q, lengths_k = lengths_of(case)
    q, dout = (normal(case, sum(lengths_q), case.heads, case.head_dim) for _ in range(2))
    k, v = (normal(case, sum(lengths_k), case.heads_k, case.head_dim) for _ in range(2))
    return _Call(q, k, v, dout, slopes_of(case), starts_of(lengths_q), starts_of(lengths_k))


@dataclass(frozen=True)
class _Forward:
    """The results of the forward op on the device."""

    tensors: tuple[Tensor, Tensor, Tensor, Tensor, Tensor]  # dout, q, k, v, out, as the op takes them
    lse: Tensor
    random_map: Tensor
    sequences: tuple[Tensor, Tensor] | None
    slopes: Tensor | None
    rng_state: Tensor


def _forward(case: Case, call: _Call, device: torch.device) -> _Forward:
    slopes, state = on_device(device, call.slopes), torch.tensor([1, 2], device=device)
    options = {**arguments_of(case), "dropout_p": case.dropout_p, "return_dropout_map": True}
    dout, q, k, v = (tensor.to(device) for tensor in (call.dout, call.q, call.k, call.v))
    if case.mode == "batch":
        dout, q, k, v = (tensor.unflatten(0, (case.batch, -1)) for tensor in (dout, q, k, v))
        out, lse, random_map = torch.ops.flash_attn_rocm.fwd(q, k, v, slopes, state, **options)
        return _Forward((dout, q, k, v, out), lse, random_map, None, slopes, state)
    sequences = (call.starts_q.to(device), call.starts_k.to(device))
    out, lse, random_map = torch.ops.flash_attn_rocm.varlen_fwd(
        q, k, v, *sequences, None, None, slopes, state, **options, **_longest(case)
    )
    return _Forward((dout, q, k, v, out), lse, random_map, sequences, slopes, state)


def _longest(case: Case) -> dict[str, int]:
    lengths_q, lengths_k = lengths_of(case)
    return {"max_seqlen_q": max(lengths_q), "max_seqlen_k": max(lengths_k)}


def _backward(case: Case, forward: _Forward) -> reference.Tensors:
    options = {name: value for name, value in arguments_of(case).items() if name != "softcap"}
    options |= {"dropout_p": case.dropout_p, "deterministic": case.deterministic}
    options |= _longest(case) if case.mode == "group" else {}
    dq, dk, dv, _ = ck_backward.gradients(
        forward.tensors, forward.lse, forward.sequences, forward.slopes, forward.rng_state, **options
    )
    first = 2 if case.mode == "batch" else 1
    dq, dk, dv = (grad.flatten(0, first - 1).cpu() for grad in (dq, dk, dv))
    return dq, dk, dv


def _of_sequence(case: Case, forward: _Forward, b: int, rows: slice, keys: int) -> tuple[Tensor, Tensor | None]:
    """lse (nheads, its queries), and with dropout the random map (nheads, its queries, its keys)."""
    if case.mode == "batch":
        lse, random_map = forward.lse[b], forward.random_map[b] if case.dropout_p else None
    else:
        lse, random_map = forward.lse[:, rows], forward.random_map[:, rows, :keys] if case.dropout_p else None
    return lse.cpu(), random_map


def _compare(case: Case, call: _Call, forward: _Forward, grads: reference.Tensors) -> reference.Comparison:
    """The worst sequence; the LSE is that of the forward call."""
    errors, lse_error = [(0.0, reference.ERROR_FLOOR)], 0.0
    scoring = scoring_of(case, call.slopes)
    for b in range(call.starts_q.numel() - 1):
        rows, keys = (slice(int(starts[b]), int(starts[b + 1])) for starts in (call.starts_q, call.starts_k))
        lse, random_map = _of_sequence(case, forward, b, rows, keys.stop - keys.start)
        dropped = None if random_map is None else reference.Dropped(case.dropout_p, random_map[None])
        q, k, v = call.q[None, rows], call.k[None, keys], call.v[None, keys]
        got = grads[0][None, rows], grads[1][None, keys], grads[2][None, keys]
        errors.append(reference.compare_gradients(got, (q, k, v), call.dout[None, rows], scoring, dropped))
        _, exact_lse = reference.attention_in(torch.float64, q, k, v, scoring)
        lse_error = max(lse_error, reference.max_difference(lse[None], exact_lse))
    error, allowed = max(errors, key=lambda pair: pair[0] / pair[1])
    return reference.Comparison(error, allowed, lse_error, reference.LSE_ALLOWED)


def run(case: Case, device: torch.device) -> reference.Comparison:
    """Call the forward and backward ops of the case's mode; deterministic gradients must come out alike twice."""
    ops.load()
    ops.follow_environment()
    torch.manual_seed(0)
    call = _draw(case)
    forward = _forward(case, call, device)
    grads = _backward(case, forward)
    if case.deterministic:
        again = _backward(case, forward)
        if not all(torch.equal(one, other) for one, other in zip(grads, again, strict=True)):
            return reference.Comparison(math.inf, 0.0, 0.0, reference.LSE_ALLOWED)
    return _compare(case, call, forward, grads)
