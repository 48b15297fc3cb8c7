"""Runs a verification case that one op call with features makes: varlen, KV cache, ALiBi, softcap, dropout."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from flash_attn_rocm import ops, reference
from flash_attn_rocm.limits import NAMED_DTYPES
from flash_attn_rocm.verification.cases import Case

_APPENDED = 2  # rows that a case with a KV cache appends


@dataclass(frozen=True)
class Sequence:
    """One sequence as the kernels should have seen it, and what they made of it."""

    q: Tensor  # (seqlen_q, nheads, headdim)
    k: Tensor
    v: Tensor
    out: Tensor
    lse: Tensor  # (nheads, seqlen_q)
    slopes: Tensor | None
    random_map: Tensor | None  # (nheads, seqlen_q, seqlen_k)


def scoring_of(case: Case, slopes: Tensor | None) -> reference.Scoring:
    """What the case does to q k^T."""
    mask = reference.Mask(case.window[0], 0 if case.causal else case.window[1])
    return reference.Scoring(case.head_dim**-0.5, mask, case.softcap, slopes)


def _compare_one(sequence: Sequence, case: Case) -> reference.Comparison:
    scoring = scoring_of(case, sequence.slopes)
    dropped = None if sequence.random_map is None else reference.Dropped(case.dropout_p, sequence.random_map[None])
    q, k, v = (tensor[None] for tensor in (sequence.q, sequence.k, sequence.v))
    return reference.compare(sequence.out[None], sequence.lse[None], q, k, v, scoring, dropped)


def compare(sequences: list[Sequence], case: Case) -> reference.Comparison:
    """The worst of the sequences, each against float64; what is allowed comes from the same steps in its dtype."""
    results = [_compare_one(sequence, case) for sequence in sequences]
    worst = max(results, key=lambda result: result.error / result.allowed)
    return replace(worst, lse_error=max(result.lse_error for result in results))


def normal(case: Case, *shape: int) -> Tensor:
    """Random numbers in the case's dtype, on the CPU."""
    return torch.randn(shape).to(NAMED_DTYPES[case.dtype])


def arguments_of(case: Case) -> dict[str, Any]:
    """The keyword arguments that the ops of all modes share."""
    return {
        "softmax_scale": case.head_dim**-0.5,
        "window_left": case.window[0],
        "window_right": 0 if case.causal else case.window[1],
        "softcap": case.softcap,
    }


def slopes_of(case: Case) -> Tensor | None:
    """ALiBi slopes (nheads,)."""
    return torch.rand(case.heads) / 4 if case.alibi else None


def on_device(device: torch.device, tensor: Tensor | None) -> Tensor | None:
    """The optional tensor there."""
    return None if tensor is None else tensor.to(device)


def _run_batch(case: Case, device: torch.device) -> Iterator[Sequence]:
    q = normal(case, case.batch, case.seqlen_q, case.heads, case.head_dim)
    k, v = (normal(case, case.batch, case.seqlen_k, case.heads_k, case.head_dim) for _ in range(2))
    slopes = slopes_of(case)
    out, lse, random = torch.ops.flash_attn_rocm.fwd(
        *(tensor.to(device) for tensor in (q, k, v)),
        on_device(device, slopes),
        torch.tensor([1, 2], device=device),
        **arguments_of(case),
        dropout_p=case.dropout_p,
        return_dropout_map=True,
    )
    for b in range(case.batch):
        yield Sequence(q[b], k[b], v[b], out[b].cpu(), lse[b].cpu(), slopes, random[b] if case.dropout_p else None)


def lengths_of(case: Case) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How many queries and keys each sequence of a batch or group has."""
    if case.mode == "batch":
        return (case.seqlen_q,) * case.batch, (case.seqlen_k,) * case.batch
    return (case.seqlen_q, 0, case.seqlen_q // 2), (case.seqlen_k, 3, case.seqlen_k // 3)


def starts_of(lengths: tuple[int, ...]) -> Tensor:
    """Where each sequence begins, and where the last one ends: cu_seqlens."""
    return torch.tensor([sum(lengths[:i]) for i in range(len(lengths) + 1)], dtype=torch.int32)


def _run_group(case: Case, device: torch.device) -> Iterator[Sequence]:
    lengths_q, lengths_k = lengths_of(case)
    starts_q, starts_k = starts_of(lengths_q), starts_of(lengths_k)
    q = normal(case, sum(lengths_q), case.heads, case.head_dim)
    k, v = (normal(case, sum(lengths_k), case.heads_k, case.head_dim) for _ in range(2))
    slopes = slopes_of(case)
    out, lse, random = torch.ops.flash_attn_rocm.varlen_fwd(
        *(tensor.to(device) for tensor in (q, k, v, starts_q, starts_k)),
        None,
        None,
        on_device(device, slopes),
        torch.tensor([1, 2], device=device),
        **arguments_of(case),
        max_seqlen_q=max(lengths_q),
        max_seqlen_k=max(lengths_k),
        dropout_p=case.dropout_p,
        return_dropout_map=True,
    )
    for b, (length_q, length_k) in enumerate(zip(lengths_q, lengths_k, strict=True)):
        rows, keys = (slice(int(s[b]), int(s[b]) + n) for s, n in ((starts_q, length_q), (starts_k, length_k)))
        mine = random[:, rows, :length_k] if case.dropout_p else None
        yield Sequence(q[rows], k[keys], v[keys], out[rows].cpu(), lse[:, rows].cpu(), slopes, mine)


def _run_cache(case: Case, device: torch.device) -> Iterator[Sequence]:
    """A cache that is full but for two rows, which the call appends, and one that is nearly empty."""
    page = case.page or case.seqlen_k
    pages = -(-case.seqlen_k // page)
    lengths = (case.seqlen_k - _APPENDED, 1)
    table = torch.randperm(2 * pages).reshape(2, pages).to(torch.int32) if case.page else None
    q = normal(case, 2, case.seqlen_q, case.heads, case.head_dim)
    stores = [normal(case, 2 * pages, page, case.heads_k, case.head_dim) for _ in range(2)]
    new = [normal(case, 2, _APPENDED, case.heads_k, case.head_dim) for _ in range(2)]
    slopes = slopes_of(case)
    on_gpu = [store.to(device, copy=True) for store in stores]
    out, lse = torch.ops.flash_attn_rocm.kvcache_fwd(
        q.to(device),
        *on_gpu,
        *(tensor.to(device) for tensor in new),
        None,
        None,
        torch.tensor(lengths, dtype=torch.int32, device=device),
        None,
        None,
        on_device(device, table),
        on_device(device, slopes),
        **arguments_of(case),
        num_splits=case.num_splits,
    )
    for b, length in enumerate(lengths):
        kv = []
        for store, rows in zip(stores, new, strict=True):
            cache = store[b] if table is None else store[table[b].long()].flatten(0, 1)
            kv.append(torch.cat([cache[:length], rows[b]]))
        yield Sequence(q[b], kv[0], kv[1], out[b].cpu(), lse[b].cpu(), slopes, None)


_RUNNERS = {"batch": _run_batch, "group": _run_group, "cache": _run_cache}


def run(case: Case, device: torch.device) -> reference.Comparison:
    """Call the op of the case's mode on the CK kernels and compare every sequence."""
    ops.load()
    ops.follow_environment()
    torch.manual_seed(0)
    return compare(list(_RUNNERS[case.mode](case, device)), case)
