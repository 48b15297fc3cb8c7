"""Attention for the tests, written independently of the package: float64 with an explicit mask, loop over heads."""

from __future__ import annotations

import math

import torch


def visible_keys(seqlen_q: int, seqlen_k: int, causal: bool, window: tuple[int, int]) -> torch.Tensor:
    """Boolean (seqlen_q, seqlen_k), from the definition: i + Sk - Sq - left <= j <= i + Sk - Sq + right."""
    left, right = window
    if causal:
        right = 0
    table = [
        [
            (left < 0 or j >= i + seqlen_k - seqlen_q - left) and (right < 0 or j <= i + seqlen_k - seqlen_q + right)
            for j in range(seqlen_k)
        ]
        for i in range(seqlen_q)
    ]
    return torch.tensor(table, dtype=torch.bool).reshape(seqlen_q, seqlen_k)


def attention_fp64(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    window: tuple[int, int] = (-1, -1),
    scale: float | None = None,
    softcap: float = 0.0,
    slopes: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """out (B, Sq, H, D) and lse (B, H, Sq) in float64; differentiable."""
    batch, seqlen_q, nheads, headdim = q.shape
    seqlen_k, nheads_k = k.shape[1], k.shape[2]
    scale = 1.0 / math.sqrt(headdim) if scale is None else scale
    keep = visible_keys(seqlen_q, seqlen_k, causal, window)
    distance = torch.tensor(
        [[abs(i + seqlen_k - seqlen_q - j) for j in range(seqlen_k)] for i in range(seqlen_q)], dtype=torch.float64
    ).reshape(seqlen_q, seqlen_k)
    outs = [torch.zeros(0, headdim, dtype=torch.float64)]
    lses = [torch.zeros(0, dtype=torch.float64)]
    for b in range(batch):
        for h in range(nheads):
            key = k[b, :, h * nheads_k // nheads].double()
            value = v[b, :, h * nheads_k // nheads].double()
            scores = q[b, :, h].double() @ key.T * scale
            if softcap:
                scores = softcap * torch.tanh(scores / softcap)
            if slopes is not None:
                slope = slopes[h] if slopes.dim() == 1 else slopes[b, h]
                scores = scores - slope.double() * distance
            weights = torch.exp(scores) * keep
            total = weights.sum(-1)
            safe = torch.where(total > 0, total, torch.ones_like(total))
            outs.append((weights / safe[:, None]) @ value)
            lses.append(torch.log(total))
    out = torch.cat(outs).reshape(batch, nheads, seqlen_q, headdim).transpose(1, 2)
    return out, torch.cat(lses).reshape(batch, nheads, seqlen_q)


def attention_same_dtype(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    window: tuple[int, int] = (-1, -1),
    scale: float | None = None,
) -> torch.Tensor:
    """out (B, Sq, H, D) with every step in the inputs' dtype, as plain torch code would compute it."""
    headdim, group = q.shape[3], q.shape[2] // k.shape[2]
    scale = 1.0 / math.sqrt(headdim) if scale is None else scale
    keys = k.repeat_interleave(group, dim=2).permute(0, 2, 3, 1)
    values = v.repeat_interleave(group, dim=2).transpose(1, 2)
    scores = (q.transpose(1, 2) * scale) @ keys
    keep = visible_keys(q.shape[1], k.shape[1], causal, window)
    if k.shape[1] == 0:
        return torch.zeros_like(q)
    weights = torch.softmax(scores.masked_fill(~keep, -math.inf), dim=-1)
    weights = torch.where(keep.any(-1, keepdim=True), weights, torch.zeros_like(weights))
    return (weights @ values).transpose(1, 2)
