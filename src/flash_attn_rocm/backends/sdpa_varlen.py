"""Attention of sequences of several lengths with torch operations: padded, attended to, packed; differentiable."""

from __future__ import annotations

import torch
from torch import Tensor

from flash_attn_rocm.backends import dense
from flash_attn_rocm.backends.padding import Lengths, Packed, attend, gather_pages


def padded_keys(
    k: Tensor,
    v: Tensor,
    cu_seqlens_k: Tensor,
    seqused_k: Tensor | None,
    leftpad_k: Tensor | None,
    block_table: Tensor | None,
    max_seqlen_k: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """k and v as (B, max_seqlen_k, Hk, D), with int64 (B,) first visible key and end of the keys of each sequence."""
    packed = Packed.from_cu_seqlens(cu_seqlens_k, max_seqlen_k)
    ends = packed.lengths if seqused_k is None else seqused_k.to(torch.int64)
    first = torch.zeros_like(ends) if leftpad_k is None else leftpad_k.to(torch.int64)
    if block_table is None:
        return packed.pad(k), packed.pad(v), first, ends
    page_size = k.shape[1]
    table = block_table[:, : -(-max_seqlen_k // page_size)]
    return gather_pages(k, table), gather_pages(v, table), first, ends


def _without_keys(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Zeros like q that depend on q, k and v for autograd."""
    nothing = sum(tensor[:0].sum() for tensor in (q, k, v))
    return torch.zeros_like(q, memory_format=torch.contiguous_format) + nothing


def forward(
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
    rng_state: Tensor | None = None,
    want_lse: bool,
    want_map: bool = False,
    num_splits: int = 0,
    deterministic: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention of checked arguments: out (Tq, H, D), lse float32 (H, Tq), dropout map uint8 (H, Tq, max_seqlen_k).

    With dropout, weights are dropped by the map of `rng_state`; without one torch draws, and there is no map. lse and
    map are empty where there is none; lse also unless `want_lse`. Rows that belong to no sequence are zeros.
    """
    # There is a map iff there is an rng_state; torch decides on its own how to split and what is deterministic.
    del want_map, num_splits, deterministic
    total, heads, _ = q.shape
    empty = q.new_empty((0,), dtype=torch.float32)
    if q.numel() == 0 or k.numel() == 0 or cu_seqlens_q.shape[0] == 1 or max_seqlen_q == 0 or max_seqlen_k == 0:
        lse = q.new_full((heads, total), float("-inf"), dtype=torch.float32) if want_lse else empty
        pattern = empty
        if dropout_p > 0.0 and rng_state is not None:
            pattern = q.new_zeros((heads, total, max_seqlen_k), dtype=torch.uint8)
        return _without_keys(q, k, v), lse, pattern

    queries = Packed.from_cu_seqlens(cu_seqlens_q, max_seqlen_q)
    keys, values, first_key, end_of_keys = padded_keys(
        k, v, cu_seqlens_k, seqused_k, leftpad_k, block_table, max_seqlen_k
    )
    with dense.without_autocast(q.device):
        out, lse, pattern = attend(
            queries.pad(q),
            keys,
            values,
            Lengths(queries.lengths, first_key, end_of_keys),
            dense.Scoring(softmax_scale, softcap),
            window=(window_left, window_right),
            dropout_p=dropout_p,
            alibi_slopes=alibi_slopes,
            rng_state=rng_state,
            want_lse=want_lse,
        )
    out = queries.unpad(out, total)
    if lse.numel():
        lse = queries.unpad(lse.transpose(1, 2), total, float("-inf")).T.contiguous()
    if pattern is None:
        return out, lse, empty
    rows = queries.unpad(pattern[..., :max_seqlen_k].transpose(1, 2), total)
    return out, lse, rows.transpose(0, 1).contiguous()
