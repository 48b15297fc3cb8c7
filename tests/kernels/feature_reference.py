"""Attention with every feature, in any dtype, from the definitions: one sequence, explicit masks, no shortcuts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tests.api.attention_reference import visible_keys


@dataclass(frozen=True)
class Features:
    """What is done to the scores; slopes (nheads,) in float32, kept (nheads, Sq, Sk) the weights that dropout keeps."""

    causal: bool = False
    window: tuple[int, int] = (-1, -1)
    softcap: float = 0.0
    slopes: Tensor | None = None
    kept: Tensor | None = None
    dropout_p: float = 0.0
    scale: float | None = None


def attend(dtype: torch.dtype, q: Tensor, k: Tensor, v: Tensor, features: Features) -> tuple[Tensor, Tensor]:
    """Out (Sq, H, D) and lse (H, Sq) of q (Sq, H, D), k and v (Sk, Hk, D), every step in `dtype`.

    Queries that see no key give 0 and -inf.
    """
    seqlen_q, nheads, headdim = q.shape
    seqlen_k, nheads_k, _ = k.shape
    if seqlen_k == 0 or seqlen_q == 0:
        return torch.zeros(q.shape, dtype=dtype), torch.full((nheads, seqlen_q), -math.inf, dtype=dtype)
    scale = 1.0 / math.sqrt(headdim) if features.scale is None else features.scale
    rows = q.to(dtype).transpose(0, 1)
    keys = k.to(dtype).repeat_interleave(nheads // nheads_k, dim=1).permute(1, 2, 0)
    values = v.to(dtype).repeat_interleave(nheads // nheads_k, dim=1).transpose(0, 1)
    scores = (rows * scale) @ keys
    if features.softcap:
        scores = features.softcap * torch.tanh(scores / features.softcap)
    if features.slopes is not None:
        i, j = torch.arange(seqlen_q)[:, None], torch.arange(seqlen_k)[None, :]
        distance = (i + seqlen_k - seqlen_q - j).abs().to(dtype)
        scores = scores - features.slopes.to(dtype)[:, None, None] * distance
    keep = visible_keys(seqlen_q, seqlen_k, features.causal, features.window)
    scores = scores.masked_fill(~keep, -math.inf)
    weights = torch.nan_to_num(torch.softmax(scores, dim=-1), nan=0.0)
    lse = torch.logsumexp(scores.double(), dim=-1)
    if features.kept is not None:
        weights = weights * features.kept.to(dtype) / (1.0 - features.dropout_p)
    return (weights @ values).transpose(0, 1), lse


def check_result(out: Tensor, lse: Tensor, q: Tensor, k: Tensor, v: Tensor, features: Features, what: str) -> None:
    """Fail unless out and lse of one sequence are within twice the error of the same computation in q's dtype.

    Bound for the dropped and softcapped alike: twice torch's own error in the same dtype, plus 1e-5; lse: 1e-4.
    """
    expected, expected_lse = attend(torch.float64, q, k, v, features)
    same_dtype, _ = attend(q.dtype, q, k, v, features)
    assert out.shape == q.shape
    assert lse.shape == expected_lse.shape
    if not expected.numel():
        return
    allowed = 2 * (same_dtype.double() - expected).abs().max().item() + 1e-5
    error = (out.cpu().double() - expected).abs().max().item()
    assert error <= allowed, f"{what}: error {error:.3g}, allowed {allowed:.3g}"
    hidden = torch.isneginf(expected_lse)
    assert torch.equal(torch.isneginf(lse.cpu()), hidden), what
    assert (out.cpu().transpose(0, 1)[hidden] == 0).all(), what
    torch.testing.assert_close(lse.cpu().double()[~hidden], expected_lse[~hidden], atol=1e-4, rtol=1e-5)
