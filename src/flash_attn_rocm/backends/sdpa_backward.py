"""Gradients of one call from its own out and LSE with torch operations, sequences of one length or of several."""

from __future__ import annotations

import torch
from torch import Tensor

from flash_attn_rocm.backends import dense
from flash_attn_rocm.backends.dense_backward import gradients
from flash_attn_rocm.backends.padding import Packed
from flash_attn_rocm.backends.sdpa import relative_positions
from flash_attn_rocm.dropout import random_map


def _dropout(dropout_p: float, rng_state: Tensor | None, shape: tuple[int, int, int, int]) -> dense.Dropout:
    if dropout_p > 0.0 and rng_state is not None:
        return dense.Dropout(dropout_p, random_map(rng_state, *shape))
    return dense.NO_DROPOUT


def backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    *,
    softmax_scale: float,
    window: tuple[int, int],
    softcap: float,
    alibi_slopes: Tensor | None,
    dropout_p: float,
    rng_state: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """dq, dk, dv (float32, shapes of q, k, v) and softmax_d float32 (B, H, Sq)."""
    batch, seqlen_q, heads, _ = q.shape
    seqlen_k = k.shape[1]
    relative = relative_positions(seqlen_q, seqlen_k, q.device)
    bias = None if alibi_slopes is None else dense.alibi_bias(alibi_slopes, relative)
    scoring = dense.Scoring(softmax_scale, softcap, bias, dense.visible_band(relative, *window))
    with torch.no_grad(), dense.without_autocast(q.device):
        dq, dk, dv, softmax_d = gradients(
            (dout, q, k, v, out), lse, scoring, _dropout(dropout_p, rng_state, (batch, heads, seqlen_q, seqlen_k))
        )
    return dq, dk, dv, softmax_d


def varlen_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    *,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    softmax_scale: float,
    window: tuple[int, int],
    softcap: float,
    alibi_slopes: Tensor | None,
    dropout_p: float,
    rng_state: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """dq, dk, dv (float32, shapes of q, k, v) and softmax_d float32 (H, Tq); zero in rows of no sequence."""
    if q.numel() == 0 or k.numel() == 0 or cu_seqlens_q.shape[0] == 1 or max_seqlen_q == 0 or max_seqlen_k == 0:
        dq, dk, dv = (torch.zeros_like(tensor, dtype=torch.float32) for tensor in (q, k, v))
        return dq, dk, dv, torch.zeros_like(lse)
    queries = Packed.from_cu_seqlens(cu_seqlens_q, max_seqlen_q)
    keys = Packed.from_cu_seqlens(cu_seqlens_k, max_seqlen_k)
    key = torch.arange(max_seqlen_k, device=q.device)
    query = torch.arange(max_seqlen_q, device=q.device)
    aligned = query + (keys.lengths - queries.lengths)[:, None]
    relative = (key[None, None, :] - aligned[:, :, None])[:, None]
    inside = (key < keys.lengths[:, None])[:, None, None] & (query < queries.lengths[:, None])[:, None, :, None]
    bias = None if alibi_slopes is None else dense.alibi_bias(alibi_slopes, relative)
    scoring = dense.Scoring(softmax_scale, softcap, bias, dense.visible_band(relative, *window) & inside)
    shape = (cu_seqlens_q.shape[0] - 1, q.shape[1], max_seqlen_q, max_seqlen_k)
    padded = (queries.pad(dout), queries.pad(q), keys.pad(k), keys.pad(v), queries.pad(out))
    with torch.no_grad(), dense.without_autocast(q.device):
        padded_lse = queries.pad(lse.T).transpose(1, 2)
        dq, dk, dv, softmax_d = gradients(padded, padded_lse, scoring, _dropout(dropout_p, rng_state, shape))
    return (
        queries.unpad(dq, q.shape[0]),
        keys.unpad(dk, k.shape[0]),
        keys.unpad(dv, k.shape[0]),
        queries.unpad(softmax_d.transpose(1, 2), q.shape[0]).T.contiguous(),
    )
