"""Attention to a KV cache with torch operations: appends in place, paged or not; reads no length on the host."""

from __future__ import annotations

import torch
from torch import Tensor

from flash_attn_rocm.backends import dense, sdpa
from flash_attn_rocm.backends.padding import Lengths, attend, gather_pages
from flash_attn_rocm.backends.rotary import rotate
from flash_attn_rocm.limits import capacity_of


def _append(cache: Tensor, new: Tensor, positions: Tensor, rows: Tensor | None, block_table: Tensor | None) -> None:
    """Write new (B, Sn, Hk, D) into the cache at positions (B, Sn) of rows (B,), or of the pages of block_table."""
    if block_table is not None:
        page_size = cache.shape[1]
        pages = block_table.to(torch.int64).gather(1, positions // page_size)
        cache.index_put_((pages, positions % page_size), new)
        return
    if rows is None:
        rows = torch.arange(new.shape[0], device=new.device)
    cache.index_put_((rows[:, None].expand_as(positions), positions), new)


def forward(
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
    num_splits: int = 0,
    want_lse: bool,
) -> tuple[Tensor, Tensor]:
    """Attention of checked arguments: out (B, Sq, H, D), lse float32 (B, H, Sq), empty unless `want_lse`."""
    del num_splits  # torch decides on its own how to split
    batch, seqlen_q, heads, _ = q.shape
    capacity = capacity_of(k_cache, block_table)
    rows = None if cache_batch_idx is None else cache_batch_idx.to(torch.int64)
    if cache_seqlens is None:
        ends = torch.full((batch,), capacity, dtype=torch.int64, device=q.device)
    else:
        ends = cache_seqlens.to(torch.int64)
    if k is not None and v is not None:
        new = torch.arange(k.shape[1], device=q.device)
        if rotary_cos is not None and rotary_sin is not None:
            # Without a causal or window mask every query stands at the position after the cache.
            steps = torch.arange(seqlen_q, device=q.device) * int(window_left >= 0 or window_right >= 0)
            q = rotate(q, rotary_cos, rotary_sin, ends[:, None] + steps, interleaved=rotary_interleaved)
            k = rotate(k, rotary_cos, rotary_sin, ends[:, None] + new, interleaved=rotary_interleaved)
        for cache, appended in ((k_cache, k), (v_cache, v)):
            _append(cache, appended, ends[:, None] + new, rows, block_table)
        ends = ends + k.shape[1]

    if q.numel() == 0 or k_cache.numel() == 0 or capacity == 0:
        lse = q.new_full((batch, heads, seqlen_q), float("-inf"), dtype=torch.float32)
        return torch.zeros_like(q, memory_format=torch.contiguous_format), lse
    if block_table is not None:
        keys, values = (gather_pages(cache, block_table) for cache in (k_cache, v_cache))
    elif rows is not None:
        keys, values = (cache.index_select(0, rows) for cache in (k_cache, v_cache))
    else:
        keys, values = k_cache[:batch], v_cache[:batch]
    if cache_seqlens is None and cache_leftpad is None:
        out, lse, _ = sdpa.forward(
            q,
            keys,
            values,
            softmax_scale=softmax_scale,
            window_left=window_left,
            window_right=window_right,
            softcap=softcap,
            dropout_p=0.0,
            alibi_slopes=alibi_slopes,
            want_lse=want_lse,
        )
        return out, lse
    first = torch.zeros_like(ends) if cache_leftpad is None else cache_leftpad.to(torch.int64)
    with dense.without_autocast(q.device):
        out, lse, _ = attend(
            q,
            keys,
            values,
            Lengths(torch.full_like(ends, seqlen_q), first, ends),
            dense.Scoring(softmax_scale, softcap),
            window=(window_left, window_right),
            dropout_p=0.0,
            alibi_slopes=alibi_slopes,
            rng_state=None,
            want_lse=want_lse,
        )
    return out.contiguous(), lse
