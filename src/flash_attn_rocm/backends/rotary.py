"""Rotary position embedding with torch operations, as the KV-cache function applies it."""

from __future__ import annotations

import torch
from torch import Tensor


def rotate(x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, *, interleaved: bool) -> Tensor:
    """x (B, S, H, D) with its first 2 * cos.shape[1] features rotated to `positions`; computed in float32.

    Args:
        x: float16 or bfloat16; the result has its dtype.
        cos: (seqlen_ro, rotary_dim / 2).
        sin: like cos.
        positions: int64 (B, S), rows of cos and sin; those beyond the table use its last row.
        interleaved: features (0, 1), (2, 3), ... are pairs; else feature i and i + rotary_dim / 2.
    """
    half = cos.shape[1]
    rows = positions.clamp(0, cos.shape[0] - 1)
    c, s = (table.to(torch.float32)[rows][:, :, None] for table in (cos, sin))
    rotated, rest = x[..., : 2 * half].to(torch.float32), x[..., 2 * half :]
    pairs = rotated.unflatten(-1, (half, 2) if interleaved else (2, half))
    axis = -1 if interleaved else -2
    first, second = pairs.unbind(axis)
    turned = torch.stack([first * c - second * s, first * s + second * c], dim=axis).flatten(-2)
    return torch.cat([turned.to(x.dtype), rest], dim=-1)
