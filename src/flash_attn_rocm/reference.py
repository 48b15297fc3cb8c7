"""Attention written as plainly as possible, to check kernels against: float64, and the same mathematics in 16 bits."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

# q, k and v, or what belongs to them.
Tensors = tuple[Tensor, Tensor, Tensor]
# |out - reference| may be this many times the error of the same computation in torch in the inputs' dtype, plus a
# constant for cases where torch happens to be exact.
ERROR_FACTOR = 2.0
ERROR_FLOOR = 1e-5
# The same for gradients, whose errors pass through more roundings; upstream's tests allow 10.
GRADIENT_ERROR_FACTOR = 3.0
# LSE is float32 in every backend; float32 sums of scores below 100 are good to about 1e-5.
LSE_ALLOWED = 1e-4


@dataclass(frozen=True)
class Mask:
    """Which keys a query sees, aligned bottom-right; -1 is unbounded."""

    left: int = -1
    right: int = -1

    def keep(self, seqlen_q: int, seqlen_k: int) -> Tensor:
        """Boolean (seqlen_q, seqlen_k)."""
        keep = torch.ones(seqlen_q, seqlen_k, dtype=torch.bool)
        for i in range(seqlen_q):
            aligned = i + seqlen_k - seqlen_q
            if self.left >= 0:
                keep[i, : min(seqlen_k, max(0, aligned - self.left))] = False
            if self.right >= 0:
                keep[i, max(0, aligned + self.right + 1) :] = False
        return keep


@dataclass(frozen=True)
class Scoring:
    """What is done to q k^T: softmax_scale, then softcap, ALiBi slopes (nheads,) or (batch, nheads), and the mask."""

    softmax_scale: float
    mask: Mask = Mask()
    softcap: float = 0.0
    alibi_slopes: Tensor | None = None

    def of_sequence(self, index: int) -> Scoring:
        """For one sequence of a batch."""
        if self.alibi_slopes is None or self.alibi_slopes.dim() == 1:
            return self
        return replace(self, alibi_slopes=self.alibi_slopes[index])


@dataclass(frozen=True)
class Dropped:
    """Dropout: its probability, and the random byte of each weight (batch, nheads, seqlen_q, seqlen_k)."""

    probability: float
    random_map: Tensor

    def factors(self) -> Tensor:
        """What each weight is multiplied by, float64."""
        kept = self.random_map.cpu().to(torch.int64) <= math.floor(255.0 * (1.0 - self.probability))
        return kept.to(torch.float64) / (1.0 - self.probability)


def attention_in(
    dtype: torch.dtype, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring, dropped: Dropped | None = None
) -> tuple[Tensor, Tensor]:
    """Attention with every step in `dtype` on the CPU: out (B, Sq, H, D), lse (B, H, Sq) in dtype or float32.

    Queries that see no key give out 0 and lse -inf. Torch can differentiate out.
    """
    seqlen_q, seqlen_k = q.shape[1], k.shape[1]
    groups = q.shape[2] // k.shape[2]
    heads_first = [tensor.cpu().to(dtype).transpose(1, 2) for tensor in (q, k, v)]
    rows, keys, values = heads_first[0], *(t.repeat_interleave(groups, dim=1) for t in heads_first[1:])
    scores = torch.matmul(rows * scoring.softmax_scale, keys.transpose(-1, -2))
    if scoring.softcap > 0.0:
        scores = scoring.softcap * torch.tanh(scores / scoring.softcap)
    if scoring.alibi_slopes is not None:
        distance = (torch.arange(seqlen_q)[:, None] + seqlen_k - seqlen_q - torch.arange(seqlen_k)).abs()
        slopes = scoring.alibi_slopes.detach().cpu().double()
        slopes = slopes.reshape(-1, slopes.shape[-1], 1, 1)
        scores = scores - (slopes * distance).to(dtype)
    keep = scoring.mask.keep(seqlen_q, seqlen_k)
    scores = scores.masked_fill(~keep, float("-inf"))
    if seqlen_k == 0:
        shape = (q.shape[0], q.shape[2], seqlen_q)
        return torch.zeros(q.shape, dtype=dtype), torch.full(shape, float("-inf"), dtype=dtype)
    # Rows without a key: softmax of zeros, times 0, where both softmax and its derivative would be NaN.
    sees_any = keep.any(-1, keepdim=True)
    probabilities = torch.softmax(scores.masked_fill(~sees_any, 0.0), dim=-1).masked_fill(~sees_any, 0.0)
    if dropped is not None:
        probabilities = probabilities * dropped.factors().to(dtype)
    lse = torch.logsumexp(scores if dtype == torch.float64 else scores.float(), dim=-1)
    return torch.matmul(probabilities, values).transpose(1, 2), lse


@dataclass(frozen=True)
class Comparison:
    """Errors of one result against float64, and what they may be."""

    error: float
    allowed: float
    lse_error: float
    lse_allowed: float

    @property
    def passed(self) -> bool:
        """Both errors are within bounds; false for NaN."""
        return self.error <= self.allowed and self.lse_error <= self.lse_allowed


def max_difference(a: Tensor, b: Tensor) -> float:
    """Largest |a - b|; equal infinities differ by 0, NaN or unequal infinities by infinity."""
    if a.numel() == 0:
        return 0.0
    difference = (a.double() - b.double()).abs()
    difference = torch.where(a.double() == b.double(), torch.zeros_like(difference), difference)
    return float(torch.nan_to_num(difference, nan=float("inf")).max())


def compare_results(out: Tensor, lse: Tensor, exact: tuple[Tensor, Tensor], same_dtype: Tensor) -> Comparison:
    """Compare a result with the float64 one; the allowed error comes from the same computation in the inputs' dtype."""
    exact_out, exact_lse = exact
    return Comparison(
        error=max_difference(out.detach().cpu(), exact_out),
        allowed=ERROR_FACTOR * max_difference(same_dtype, exact_out) + ERROR_FLOOR,
        lse_error=max_difference(lse.detach().cpu(), exact_lse),
        lse_allowed=LSE_ALLOWED,
    )


def compare(
    out: Tensor, lse: Tensor, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring, dropped: Dropped | None = None
) -> Comparison:
    """Compare the result of a call with sequences of one length."""
    with torch.no_grad():
        exact = attention_in(torch.float64, q, k, v, scoring, dropped)
        same_dtype, _ = attention_in(q.dtype, q, k, v, scoring, dropped)
    return compare_results(out, lse, exact, same_dtype)


def gradients_in(
    dtype: torch.dtype, tensors: Tensors, dout: Tensor, scoring: Scoring, dropped: Dropped | None = None
) -> Tensors:
    """dq, dk and dv of attention_in for q, k and v by torch's autograd, every step in `dtype`."""
    q, k, v = (tensor.detach().cpu().to(dtype).requires_grad_() for tensor in tensors)
    out, _ = attention_in(dtype, q, k, v, scoring, dropped)
    if not out.requires_grad:  # no keys
        return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    dq, dk, dv = torch.autograd.grad(out, (q, k, v), dout.cpu().to(dtype))
    return dq, dk, dv


def compare_gradients(
    got: Tensors, tensors: Tensors, dout: Tensor, scoring: Scoring, dropped: Dropped | None = None
) -> tuple[float, float]:
    """The error of dq, dk or dv, whichever comes nearest to what it may be, and what it may be."""
    exact = gradients_in(torch.float64, tensors, dout, scoring, dropped)
    same_dtype = gradients_in(tensors[0].dtype, tensors, dout, scoring, dropped)
    pairs = [
        (max_difference(ours.cpu(), right), GRADIENT_ERROR_FACTOR * max_difference(theirs, right) + ERROR_FLOOR)
        for ours, right, theirs in zip(got, exact, same_dtype, strict=True)
    ]
    return max(pairs, key=lambda pair: pair[0] / pair[1])
