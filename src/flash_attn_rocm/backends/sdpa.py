"""Attention with torch operations: the whole contract of flash_attn_func, differentiable, on any device.

Scores that torch's scaled_dot_product_attention can express go to it; the rest is computed in float32.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from flash_attn_rocm.backends import dense
from flash_attn_rocm.dropout import random_map


def first_visible_row(seqlen_q: int, seqlen_k: int, window_right: int) -> int:
    """Number of leading queries that see no key: bottom-right alignment hides only a prefix of the queries."""
    if seqlen_k == 0:
        return seqlen_q
    if window_right < 0:
        return 0
    return min(seqlen_q, max(0, seqlen_q - seqlen_k - window_right))


def relative_positions(seqlen_q: int, seqlen_k: int, device: torch.device) -> Tensor:
    """(seqlen_q, seqlen_k): position of key j relative to the key that query i is aligned with."""
    keys = torch.arange(seqlen_k, device=device)
    rows = torch.arange(seqlen_q, device=device) + (seqlen_k - seqlen_q)
    return keys[None, :] - rows[:, None]


def visible(seqlen_q: int, seqlen_k: int, left: int, right: int, device: torch.device) -> Tensor | None:
    """Boolean (seqlen_q, seqlen_k), true where query i sees key j; None when every query sees every key."""
    if (left < 0 or left >= seqlen_k - 1) and (right < 0 or right >= seqlen_q - 1):
        return None
    return dense.visible_band(relative_positions(seqlen_q, seqlen_k, device), left, right)


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
    rng_state: Tensor | None = None,
    want_lse: bool,
    want_map: bool = False,
    deterministic: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention of checked arguments: out (B, Sq, H, D), lse float32 (B, H, Sq), dropout map uint8 (B, H, Sq, Sk).

    With dropout, weights are dropped by the map of `rng_state`; without one torch draws, and there is no map. lse and
    map are empty where there is none; lse also unless `want_lse`.
    """
    # There is a map iff there is an rng_state; torch.use_deterministic_algorithms governs torch's gradients.
    del want_map, deterministic
    with dense.without_autocast(q.device):
        return _forward(
            q,
            k,
            v,
            dense.Scoring(softmax_scale, softcap),
            window_left,
            window_right,
            dropout_p,
            alibi_slopes,
            rng_state,
            want_lse,
        )


def _forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scoring: dense.Scoring,
    window_left: int,
    window_right: int,
    dropout_p: float,
    alibi_slopes: Tensor | None,
    rng_state: Tensor | None,
    want_lse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    batch, seqlen_q, heads, _ = q.shape
    seqlen_k = k.shape[1]
    hidden = first_visible_row(seqlen_q, seqlen_k, window_right)
    rows = q[:, hidden:].transpose(1, 2)
    keys, values = k.transpose(1, 2), v.transpose(1, 2)
    keep = visible(seqlen_q - hidden, seqlen_k, window_left, window_right, q.device)
    scoring = dense.Scoring(scoring.softmax_scale, scoring.softcap, keep=keep)

    plain = scoring.softcap == 0.0 and alibi_slopes is None and rng_state is None and not want_lse
    if plain and rows.numel() and keys.numel():
        left_open = window_left < 0 or window_left >= seqlen_k - 1
        causal = dense.decide(window_right == 0 and left_open and rows.shape[2] == seqlen_k)
        out = dense.fused(rows, keys, values, scoring, dropout_p, causal=causal)
        empty = q.new_empty((0,), dtype=torch.float32)
        return F.pad(out.transpose(1, 2), (0, 0, 0, 0, hidden, 0)).contiguous(), empty, empty

    if alibi_slopes is not None:
        bias = dense.alibi_bias(alibi_slopes, relative_positions(seqlen_q - hidden, seqlen_k, q.device))
        scoring = dense.Scoring(scoring.softmax_scale, scoring.softcap, bias, keep)
    pattern = q.new_empty((0,), dtype=torch.uint8)
    dropout = dense.Dropout(dropout_p)
    if dropout_p > 0.0 and rng_state is not None:
        pattern = random_map(rng_state, batch, heads, seqlen_q, seqlen_k)
        dropout = dense.Dropout(dropout_p, pattern[:, :, hidden:])
    out, lse = dense.explicit(rows, keys, values, scoring, dropout)
    out = F.pad(out.transpose(1, 2), (0, 0, 0, 0, hidden, 0)).contiguous()
    lse = F.pad(lse, (hidden, 0), value=float("-inf")).contiguous()
    return out, lse, pattern
