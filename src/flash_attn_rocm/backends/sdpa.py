"""Attention with torch operations: the whole contract of flash_attn_func, differentiable, on any device.

Scores that torch's scaled_dot_product_attention can express go to it; the rest is computed in float32.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def first_visible_row(seqlen_q: int, seqlen_k: int, window_right: int) -> int:
    """Number of leading queries that see no key: bottom-right alignment hides only a prefix of the queries."""
    if seqlen_k == 0:
        return seqlen_q
    if window_right < 0:
        return 0
    return min(seqlen_q, max(0, seqlen_q - seqlen_k - window_right))


def visible(seqlen_q: int, seqlen_k: int, left: int, right: int, device: torch.device) -> Tensor | None:
    """Boolean (seqlen_q, seqlen_k), true where query i sees key j; None when every query sees every key."""
    if (left < 0 or left >= seqlen_k - 1) and (right < 0 or right >= seqlen_q - 1):
        return None
    # Position of key j relative to the key that query i is aligned with.
    keys = torch.arange(seqlen_k, device=device)
    rows = torch.arange(seqlen_q, device=device) + (seqlen_k - seqlen_q)
    relative = keys[None, :] - rows[:, None]
    keep = torch.ones_like(relative, dtype=torch.bool)
    if left >= 0:
        keep = keep & (relative >= -left)
    if right >= 0:
        keep = keep & (relative <= right)
    return keep


def _alibi_bias(slopes: Tensor, seqlen_q: int, seqlen_k: int) -> Tensor:
    """(batch or 1, nheads, seqlen_q, seqlen_k): -slope * |i + seqlen_k - seqlen_q - j|."""
    rows = torch.arange(seqlen_q, device=slopes.device) + (seqlen_k - seqlen_q)
    keys = torch.arange(seqlen_k, device=slopes.device)
    distance = (rows[:, None] - keys[None, :]).abs().to(torch.float32)
    return -slopes.reshape(-1, slopes.shape[-1], 1, 1) * distance


def _explicit(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    softmax_scale: float,
    keep: Tensor | None,
    softcap: float,
    dropout_p: float,
    alibi_slopes: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Heads-first attention in float32 where every query sees a key: out, lse, signed probabilities."""
    groups = q.shape[1] // k.shape[1]
    k32 = k.to(torch.float32).repeat_interleave(groups, dim=1)
    v32 = v.to(torch.float32).repeat_interleave(groups, dim=1)
    scores = torch.matmul(q.to(torch.float32), k32.transpose(-1, -2)) * softmax_scale
    if softcap > 0.0:
        scores = softcap * torch.tanh(scores / softcap)
    if alibi_slopes is not None:
        scores = scores + _alibi_bias(alibi_slopes, q.shape[2], k.shape[2])
    if keep is not None:
        scores = scores.masked_fill(~keep, float("-inf"))
    lse = torch.logsumexp(scores, dim=-1)
    probabilities = torch.exp(scores - lse[..., None])
    pattern = q.new_empty((0,))
    if dropout_p > 0.0:
        kept = torch.rand_like(probabilities) >= dropout_p
        # Like flash_attn on CUDA: the probabilities, negative where dropped.
        pattern = torch.where(kept, probabilities, -probabilities).detach().to(q.dtype)
        probabilities = probabilities * kept / (1.0 - dropout_p)
    return torch.matmul(probabilities, v32).to(q.dtype), lse, pattern


def _decide(condition: bool | torch.SymBool) -> bool:
    """A plain bool, for arguments that must not be symbolic; under torch.compile this adds a guard."""
    if condition:  # noqa: SIM103  (the condition itself would stay symbolic)
        return True
    return False


def _fused(
    q: Tensor, k: Tensor, v: Tensor, *, softmax_scale: float, keep: Tensor | None, causal: bool, dropout_p: float
) -> Tensor:
    """Heads-first scaled_dot_product_attention where every query sees a key."""
    return F.scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=None if causal else keep,
        dropout_p=dropout_p,
        is_causal=causal,
        scale=softmax_scale,
        enable_gqa=_decide(q.shape[1] != k.shape[1]),
    )


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    softmax_scale: float,
    window_left: int,
    window_right: int,
    softcap: float,
    dropout_p: float,
    alibi_slopes: Tensor | None,
    return_attn_probs: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention of checked arguments: out (B, Sq, H, D), lse float32 (B, H, Sq), dropout pattern (B, H, Sq, Sk).

    lse and pattern are empty unless return_attn_probs; the pattern also without dropout.
    """
    batch, seqlen_q, heads, _ = q.shape
    seqlen_k = k.shape[1]
    empty = q.new_empty((0,), dtype=torch.float32)
    hidden = first_visible_row(seqlen_q, seqlen_k, window_right)
    rows = q[:, hidden:].transpose(1, 2)
    keys, values = k.transpose(1, 2), v.transpose(1, 2)
    keep = visible(seqlen_q - hidden, seqlen_k, window_left, window_right, q.device)

    if softcap == 0.0 and alibi_slopes is None and not return_attn_probs and rows.numel() and keys.numel():
        left_open = window_left < 0 or window_left >= seqlen_k - 1
        causal = _decide(window_right == 0 and left_open and rows.shape[2] == seqlen_k)
        out = _fused(rows, keys, values, softmax_scale=softmax_scale, keep=keep, causal=causal, dropout_p=dropout_p)
        return F.pad(out.transpose(1, 2), (0, 0, 0, 0, hidden, 0)).contiguous(), empty, empty

    out, lse, pattern = _explicit(
        rows,
        keys,
        values,
        softmax_scale=softmax_scale,
        keep=keep,
        softcap=softcap,
        dropout_p=dropout_p,
        alibi_slopes=alibi_slopes,
    )
    out = F.pad(out.transpose(1, 2), (0, 0, 0, 0, hidden, 0)).contiguous()
    lse = F.pad(lse, (hidden, 0), value=float("-inf")).contiguous()
    if pattern.dim() == 4:
        pattern = F.pad(pattern, (0, 0, hidden, 0))
    assert lse.shape == (batch, heads, seqlen_q)
    return out, lse, pattern
