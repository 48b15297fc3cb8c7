"""Gradients of attention from its saved out and log-sum-exp, with torch operations in float32.

They come from the given out and lse, not from a forward pass of these keys alone: ring attention calls this with a part
of the keys, and with out and lse of all of them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flash_attn_rocm.backends.dense import Dropout, Scoring, expand_heads


def gradients(
    tensors: tuple[Tensor, Tensor, Tensor, Tensor, Tensor], lse: Tensor, scoring: Scoring, dropout: Dropout
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """float32 gradients of q, k, v and softmax_d = sum(dout * out), (B, H, Sq).

    Args:
        tensors: dout, q, k, v, out; (B, S, H, D) like the gradients.
        lse: float32 (B, H, Sq); queries with an infinite one saw no key.
        scoring: how the scores were made; mask and bias are broadcastable to (B, H, Sq, Sk).
        dropout: with the random map of the forward pass.
    """
    dout, q, k, v, out = (tensor.transpose(1, 2) for tensor in tensors)
    heads, heads_k = q.shape[1], k.shape[1]
    q32, dout32 = q.to(torch.float32), dout.to(torch.float32)
    k32, v32 = expand_heads(k, heads), expand_heads(v, heads)
    scores = torch.matmul(q32, k32.transpose(-1, -2)) * scoring.softmax_scale
    slope = None
    if scoring.softcap > 0.0:
        bounded = torch.tanh(scores / scoring.softcap)
        slope = 1.0 - bounded * bounded
        scores = scoring.softcap * bounded
    if scoring.bias is not None:
        scores = scores + scoring.bias
    blind = torch.isinf(lse)[..., None]
    weights = torch.exp(scores - lse.masked_fill(torch.isinf(lse), 0.0)[..., None]).masked_fill(blind, 0.0)
    if scoring.keep is not None:
        weights = weights.masked_fill(~scoring.keep, 0.0)
    dweights = torch.matmul(dout32, v32.transpose(-1, -2))
    used = weights
    if dropout.probability > 0.0:
        factor = dropout.kept(weights) / (1.0 - dropout.probability)
        used, dweights = weights * factor, dweights * factor
    softmax_d = (dout32 * out.to(torch.float32)).sum(-1)
    dscores = weights * (dweights - softmax_d[..., None])
    if slope is not None:
        dscores = dscores * slope
    dscores = dscores * scoring.softmax_scale

    def per_key_head(gradient: Tensor) -> Tensor:
        return gradient.unflatten(1, (heads_k, heads // heads_k)).sum(2)

    dk = per_key_head(torch.matmul(dscores.transpose(-1, -2), q32))
    dv = per_key_head(torch.matmul(used.transpose(-1, -2), dout32))
    dq = torch.matmul(dscores, k32)
    return dq.transpose(1, 2), dk.transpose(1, 2), dv.transpose(1, 2), softmax_d
