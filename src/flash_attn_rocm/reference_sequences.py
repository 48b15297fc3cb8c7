"""Plain references for sequences of several lengths and KV caches: loops over sequences around attention_in."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

from flash_attn_rocm.reference import Dropped, Scoring, attention_in


def pages_of(pages: Tensor, table: Tensor, length: int) -> Tensor:
    """The first `length` rows (length, nheads, headdim) of a sequence whose pages `table` (max_blocks,) lists."""
    page_size = pages.shape[1]
    rows = [pages[int(table[j // page_size]), j % page_size] for j in range(length)]
    return torch.stack(rows) if rows else pages[0, :0]


def varlen_in(
    dtype: torch.dtype,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    scoring: Scoring,
    *,
    seqused_k: Tensor | None = None,
    leftpad_k: Tensor | None = None,
    block_table: Tensor | None = None,
    dropped: Dropped | None = None,
) -> tuple[Tensor, Tensor]:
    """out (Tq, H, D) and lse (H, Tq); rows that belong to no sequence are zeros and -inf.

    The random map of `dropped` is (nheads, total_q, max_seqlen_k).
    """
    q, k, v = (tensor.detach().cpu() for tensor in (q, k, v))
    starts_q, starts_k = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    out = torch.zeros(q.shape, dtype=dtype)
    lse = torch.full((q.shape[1], q.shape[0]), float("-inf"), dtype=dtype if dtype == torch.float64 else torch.float32)
    for b, (begin, end) in enumerate(itertools.pairwise(starts_q)):
        length = starts_k[b + 1] - starts_k[b] if seqused_k is None else int(seqused_k[b])
        first = 0 if leftpad_k is None else int(leftpad_k[b])
        if block_table is None:
            keys, values = (tensor[starts_k[b] + first : starts_k[b] + length] for tensor in (k, v))
        else:
            keys, values = (pages_of(tensor, block_table[b].cpu(), length)[first:] for tensor in (k, v))
        part = None
        if dropped is not None:
            part = Dropped(dropped.probability, dropped.random_map[None, :, begin:end, : length - first])
        rows, row_lse = attention_in(dtype, q[None, begin:end], keys[None], values[None], scoring.of_sequence(b), part)
        out[begin:end], lse[:, begin:end] = rows[0], row_lse[0]
    return out, lse


def rotated(x: Tensor, cos: Tensor, sin: Tensor, position: int, interleaved: bool) -> Tensor:
    """One row x (nheads, headdim) turned by the angles of a position; float64."""
    x, c, s = x.double().clone(), cos[position].double(), sin[position].double()
    half = c.shape[0]
    for i in range(half):
        a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + half)
        first, second = x[:, a].clone(), x[:, b].clone()
        x[:, a] = first * c[i] - second * s[i]
        x[:, b] = first * s[i] + second * c[i]
    return x


@dataclass(frozen=True)
class Cache:
    """A KV cache and how its sequences lie in it; tensors are those of flash_attn_with_kvcache, on the CPU."""

    k: Tensor
    v: Tensor
    lengths: list[int]  # before anything is appended
    batch_idx: Tensor | None = None
    leftpad: Tensor | None = None
    block_table: Tensor | None = None

    def slot(self, sequence: int, position: int) -> tuple[int, int]:
        """Indices of a key in the first two dimensions of k and v."""
        if self.block_table is not None:
            page_size = self.k.shape[1]
            return int(self.block_table[sequence, position // page_size]), position % page_size
        return sequence if self.batch_idx is None else int(self.batch_idx[sequence]), position


@dataclass(frozen=True)
class Rotary:
    """Tables (seqlen_ro, rotary_dim / 2), and which features are pairs."""

    cos: Tensor
    sin: Tensor
    interleaved: bool


def append_to(cache: Cache, k: Tensor, v: Tensor, rotary: Rotary | None) -> Cache:
    """A copy of the cache with k and v (B, Sn, Hk, D) appended, k rotated to its positions."""
    new_k, new_v = cache.k.clone(), cache.v.clone()
    for b, length in enumerate(cache.lengths):
        for i in range(k.shape[1]):
            slot = cache.slot(b, length + i)
            row = (
                k[b, i] if rotary is None else rotated(k[b, i], rotary.cos, rotary.sin, length + i, rotary.interleaved)
            )
            new_k[slot], new_v[slot] = row.to(new_k.dtype), v[b, i]
    lengths = [length + k.shape[1] for length in cache.lengths]
    return Cache(new_k, new_v, lengths, cache.batch_idx, cache.leftpad, cache.block_table)


def rotated_queries(q: Tensor, lengths: list[int], rotary: Rotary, advancing: bool) -> Tensor:
    """q (B, Sq, H, D) at positions lengths[b] and, if `advancing` (causal or window), following ones; q's dtype."""
    rows = [
        [rotated(row, rotary.cos, rotary.sin, length + (i if advancing else 0), rotary.interleaved) for i, row in rows]
        for length, rows in zip(lengths, (enumerate(sequence) for sequence in q), strict=True)
    ]
    return torch.stack([torch.stack(sequence) for sequence in rows]).to(q.dtype) if q.numel() else q


def kvcache_in(dtype: torch.dtype, q: Tensor, cache: Cache, scoring: Scoring) -> tuple[Tensor, Tensor]:
    """Attention of q (B, Sq, H, D), already rotated, to the cache, already appended to: out and lse (B, H, Sq)."""
    outs, lses = [], []
    for b, length in enumerate(cache.lengths):
        first = 0 if cache.leftpad is None else int(cache.leftpad[b])
        slots = [cache.slot(b, position) for position in range(first, length)]
        keys, values = (
            torch.stack([tensor[slot] for slot in slots]) if slots else tensor[0, :0] for tensor in (cache.k, cache.v)
        )
        out, lse = attention_in(dtype, q[b : b + 1], keys[None], values[None], scoring.of_sequence(b))
        outs.append(out)
        lses.append(lse)
    return torch.cat(outs), torch.cat(lses)
