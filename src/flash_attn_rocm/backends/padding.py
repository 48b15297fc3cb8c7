"""Sequences of several lengths as a padded batch and back: gathers only, without reading a length on the host."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from flash_attn_rocm.backends import dense
from flash_attn_rocm.dropout import random_map


@dataclass(frozen=True)
class Packed:
    """Where each sequence lies in a tensor (total, ...): starts and lengths, int64 (B,), and the padded length."""

    starts: Tensor
    lengths: Tensor
    padded: int

    @staticmethod
    def from_cu_seqlens(cu_seqlens: Tensor, max_seqlen: int) -> Packed:
        """Sequence b is rows cu_seqlens[b] up to cu_seqlens[b + 1]."""
        bounds = cu_seqlens.to(torch.int64)
        return Packed(bounds[:-1], bounds[1:] - bounds[:-1], max_seqlen)

    def pad(self, tensor: Tensor) -> Tensor:
        """(total, ...) to (B, padded, ...), zero after each sequence's end."""
        position = torch.arange(self.padded, device=tensor.device)
        inside = position < self.lengths[:, None]
        rows = torch.where(inside, self.starts[:, None] + position, 0)
        gathered = tensor.index_select(0, rows.flatten()).unflatten(0, rows.shape)
        return zero_outside(gathered, inside)

    def unpad(self, padded: Tensor, total: int, fill: float = 0.0) -> Tensor:
        """(B, padded, ...) to (total, ...); rows that belong to no sequence get `fill`."""
        row = torch.arange(total, device=padded.device)
        ends = (self.starts + self.lengths).contiguous()
        sequence = torch.searchsorted(ends, row, right=True).clamp(max=ends.shape[0] - 1)
        position = row - self.starts[sequence]
        inside = (position >= 0) & (position < self.lengths[sequence])
        rows = padded[sequence, position.clamp(0, self.padded - 1)]
        return rows.masked_fill(~inside.view(-1, *[1] * (rows.dim() - 1)), fill)


def zero_outside(tensor: Tensor, inside: Tensor) -> Tensor:
    """Zeros where `inside` (B, padded) is false: what lies there may be NaN, and 0 * NaN is NaN."""
    return tensor.masked_fill(~inside.view(*inside.shape, *[1] * (tensor.dim() - 2)), 0.0)


def gather_pages(pages: Tensor, block_table: Tensor) -> Tensor:
    """(num_blocks, page, ...) to (B, max_blocks * page, ...); entries that name no page give some page's values."""
    table = block_table.to(torch.int64).clamp(0, pages.shape[0] - 1)
    return pages.index_select(0, table.flatten()).unflatten(0, table.shape).flatten(1, 2)


@dataclass(frozen=True)
class Lengths:
    """Per sequence, int64 (B,): queries; first visible key and end of the keys within their padded tensor."""

    queries: Tensor
    first_key: Tensor
    end_of_keys: Tensor


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lengths: Lengths,
    scoring: dense.Scoring,
    *,
    window: tuple[int, int],
    dropout_p: float,
    alibi_slopes: Tensor | None,
    rng_state: Tensor | None,
    want_lse: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Attention of a padded batch: out (B, Sq, H, D), lse float32 (B, H, Sq), dropout map uint8 (B, H, Sq, Sk) or None.

    q is (B, Sq, H, D), k and v (B, Sk, Hk, D), none of them empty. lse is empty unless `want_lse`, or the scores need
    the explicit path anyway.
    """
    keys = torch.arange(k.shape[1], device=q.device)
    inside = (keys >= lengths.first_key[:, None]) & (keys < lengths.end_of_keys[:, None])
    aligned = torch.arange(q.shape[1], device=q.device) + (lengths.end_of_keys - lengths.queries)[:, None]
    relative = (keys.to(torch.int32)[None, None, :] - aligned.to(torch.int32)[:, :, None])[:, None]
    keep = dense.visible_band(relative, *window) & inside[:, None, None, :]
    seen = keep.any(-1, keepdim=True)
    bias = None if alibi_slopes is None else dense.alibi_bias(alibi_slopes, relative)
    # A query that sees nothing sees everything for now: no NaN arises, and its result is replaced.
    scoring = dense.Scoring(scoring.softmax_scale, scoring.softcap, bias, keep | ~seen)
    queries = q.transpose(1, 2)
    visible_k, visible_v = (zero_outside(tensor, inside).transpose(1, 2) for tensor in (k, v))

    pattern = None
    if scoring.softcap == 0.0 and bias is None and rng_state is None and not want_lse:
        out = dense.fused(queries, visible_k, visible_v, scoring, dropout_p)
        lse = q.new_empty((0,), dtype=torch.float32)
    else:
        if dropout_p > 0.0 and rng_state is not None:
            pattern = random_map(rng_state, q.shape[0], q.shape[2], q.shape[1], k.shape[1])
        out, lse = dense.explicit(queries, visible_k, visible_v, scoring, dense.Dropout(dropout_p, pattern))
        lse = lse.masked_fill(~seen[..., 0], float("-inf"))
    return out.masked_fill(~seen, 0.0).transpose(1, 2), lse, pattern
