"""Attention of padded batches with torch operations: masks, scores, softmax, dropout; differentiable.

Tensors are heads-first, q (B, H, Sq, D), k and v (B, Hk, Sk, D). A mask must leave every query a key; queries that see
none are the callers' business.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from flash_attn_rocm.backends import second_derivatives
from flash_attn_rocm.dropout import keep_limit


@dataclass(frozen=True)
class Scoring:
    """How scores are made of q k^T: scale, softcap, bias (broadcastable to (B, H, Sq, Sk)), mask (true is visible)."""

    softmax_scale: float
    softcap: float = 0.0
    bias: Tensor | None = None
    keep: Tensor | None = None


@dataclass(frozen=True)
class Dropout:
    """Probability, and the random bytes that decide (uint8 (B, H, Sq, Sk)); without them torch draws its own."""

    probability: float
    random_map: Tensor | None = None

    def kept(self, weights: Tensor) -> Tensor:
        """Boolean, like the weights."""
        if self.random_map is None:
            return torch.rand_like(weights) >= self.probability
        return self.random_map <= keep_limit(self.probability)


NO_DROPOUT = Dropout(0.0)


def without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Inputs have their final dtype: autocast would compute fp16 inputs in bfloat16, and float32 scores in 16 bits."""
    if device.type == "meta":  # has no autocast
        return nullcontext()
    off: AbstractContextManager[object] = torch.autocast(device.type, enabled=False)
    return off


def decide(condition: bool | torch.SymBool) -> bool:
    """A plain bool, for arguments that must not be symbolic; under torch.compile this adds a guard."""
    if condition:  # noqa: SIM103  (the condition itself would stay symbolic)
        return True
    return False


def alibi_bias(slopes: Tensor, relative: Tensor) -> Tensor:
    """-slope * |relative|, (batch or 1, nheads, Sq, Sk); relative is a key's position minus its query's."""
    return -slopes.reshape(-1, slopes.shape[-1], 1, 1) * relative.abs().to(torch.float32)


def visible_band(relative: Tensor, left: int, right: int) -> Tensor:
    """Boolean, true where a key lies in the window around the position its query is aligned with."""
    keep = torch.ones_like(relative, dtype=torch.bool)
    if left >= 0:
        keep = keep & (relative >= -left)
    if right >= 0:
        keep = keep & (relative <= right)
    return keep


def expand_heads(tensor: Tensor, heads: int) -> Tensor:
    """Keys or values in float32 with one head for each query head."""
    return tensor.to(torch.float32).repeat_interleave(heads // tensor.shape[1], dim=1)


def explicit(q: Tensor, k: Tensor, v: Tensor, scoring: Scoring, dropout: Dropout = NO_DROPOUT) -> tuple[Tensor, Tensor]:
    """Every step in float32: out in q's dtype, lse float32 (B, H, Sq)."""
    heads = q.shape[1]
    scores = torch.matmul(q.to(torch.float32), expand_heads(k, heads).transpose(-1, -2)) * scoring.softmax_scale
    if scoring.softcap > 0.0:
        scores = scoring.softcap * torch.tanh(scores / scoring.softcap)
    if scoring.bias is not None:
        scores = scores + scoring.bias
    if scoring.keep is not None:
        scores = scores.masked_fill(~scoring.keep, float("-inf"))
    lse = torch.logsumexp(scores, dim=-1)
    weights = torch.exp(scores - lse[..., None])
    if dropout.probability > 0.0:
        weights = weights * dropout.kept(weights) / (1.0 - dropout.probability)
    return torch.matmul(weights, expand_heads(v, heads)).to(q.dtype), lse


def fused(q: Tensor, k: Tensor, v: Tensor, scoring: Scoring, dropout_p: float, *, causal: bool = False) -> Tensor:
    """torch's scaled_dot_product_attention; causal replaces the mask, for as many queries as keys.

    q, k and v are views or copies that were made for this call.
    """
    second_derivatives.explain(q, k, v)
    return F.scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=None if causal else scoring.keep,
        dropout_p=dropout_p,
        is_causal=causal,
        scale=scoring.softmax_scale,
        enable_gqa=decide(q.shape[1] != k.shape[1]),
    )
