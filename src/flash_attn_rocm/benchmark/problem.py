"""What is benchmarked: one attention shape, its inputs, its floating-point operations and its exact result."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from flash_attn_rocm.limits import NAMED_DTYPES

# Products of matrices: q k^T and p v forward; q k^T again, dv, dp, dq and dk backward, which is 2.5 times as much.
_PRODUCTS = {"forward": 2.0, "backward": 5.0}
_CHUNK_BYTES = 1 << 30  # of scores that the exact result holds at a time


@dataclass(frozen=True)
class Problem:
    """Self-attention of one shape: q (batch, seqlen, heads, headdim), k and v with heads_k heads."""

    seqlen: int
    batch: int = 1
    heads: int = 16
    heads_k: int = 16
    headdim: int = 128
    dtype: str = "bf16"
    causal: bool = False

    def flops(self, direction: str) -> float:
        """Floating-point operations the standard way: 2 for each multiply-add of a product, half of them if causal."""
        product = 2.0 * self.batch * self.heads * self.seqlen * self.seqlen * self.headdim
        return _PRODUCTS[direction] * product * (0.5 if self.causal else 1.0)

    @property
    def name(self) -> str:
        """Short text that tells shapes apart."""
        heads = f"h{self.heads}" if self.heads == self.heads_k else f"h{self.heads}/{self.heads_k}"
        mask = " causal" if self.causal else ""
        return f"{self.dtype} b{self.batch} s{self.seqlen} {heads} d{self.headdim}{mask}"


@dataclass(frozen=True)
class Tensors:
    """Inputs, or what belongs to them: their gradients. All (batch, seqlen, heads, headdim)."""

    q: Tensor
    k: Tensor
    v: Tensor

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self.q, self.k, self.v))

    def map(self, function: Callable[[Tensor], Tensor]) -> Tensors:
        """The function's value for each."""
        return Tensors(function(self.q), function(self.k), function(self.v))


def draw(problem: Problem, device: torch.device, seed: int = 0) -> tuple[Tensors, Tensor]:
    """Normally distributed q, k, v and gradient of the output, the same for the same seed and device."""
    generator = torch.Generator(device=device).manual_seed(seed)

    def normal(heads: int) -> Tensor:
        shape = (problem.batch, problem.seqlen, heads, problem.headdim)
        return torch.randn(shape, generator=generator, device=device, dtype=torch.float32).to(
            NAMED_DTYPES[problem.dtype]
        )

    return Tensors(normal(problem.heads), normal(problem.heads_k), normal(problem.heads_k)), normal(problem.heads)


@dataclass(frozen=True)
class Exact:
    """The float32 result, and its gradients where they were asked for."""

    out: Tensor
    grads: Tensors | None = None


def _heads_first(tensor: Tensor, repeats: int = 1) -> Tensor:
    return tensor.float().transpose(1, 2).repeat_interleave(repeats, dim=1)


def exact(problem: Problem, inputs: Tensors, dout: Tensor | None) -> Exact:
    """Plain attention in float32 on the inputs' device, some rows of scores at a time; with dout also gradients."""
    groups = problem.heads // problem.heads_k
    q, k, v = _heads_first(inputs.q), *(_heads_first(tensor, groups) for tensor in (inputs.k, inputs.v))
    scale = 1.0 / math.sqrt(problem.headdim)
    rows = max(1, min(problem.seqlen, _CHUNK_BYTES // (4 * problem.batch * problem.heads * problem.seqlen)))
    outs = []
    dq = [torch.zeros_like(k), torch.zeros_like(v)]
    grads_q = []
    columns = torch.arange(problem.seqlen, device=q.device)
    for start in range(0, problem.seqlen, rows):
        chunk = slice(start, start + rows)
        scores = (q[:, :, chunk] * scale) @ k.transpose(-1, -2)
        if problem.causal:
            scores.masked_fill_(columns[None, :] > columns[chunk, None], float("-inf"))
        weights = torch.softmax(scores, dim=-1)
        out = weights @ v
        outs.append(out)
        if dout is not None:
            grad = _heads_first(dout[:, chunk])
            dq[1] += weights.transpose(-1, -2) @ grad
            # Of the softmax: weights * (dp - sum over keys of weights * dp), and that sum is grad . out.
            dscores = weights * (grad @ v.transpose(-1, -2) - (grad * out).sum(-1, keepdim=True))
            grads_q.append(dscores @ k * scale)
            dq[0] += dscores.transpose(-1, -2) @ (q[:, :, chunk] * scale)
    result = Exact(torch.cat(outs, dim=2).transpose(1, 2))
    if dout is None:
        return result
    shape = (problem.batch, problem.heads_k, groups, problem.seqlen, problem.headdim)
    dk, dv = (grad.reshape(shape).sum(2).transpose(1, 2) for grad in dq)
    return replace(result, grads=Tensors(torch.cat(grads_q, dim=2).transpose(1, 2), dk, dv))


def relative_error(result: Tensor, reference: Tensor) -> float:
    """The larger of |result - reference| / |reference| over all, and a quarter of that of the worst row.

    Infinity where a number is not finite. Rows are the last dimension; a quarter, since one row's error scatters.
    """
    if result.shape != reference.shape or not bool(torch.isfinite(result).all()):
        return math.inf
    difference = (result.float() - reference).norm(dim=-1)
    size = reference.norm(dim=-1)
    overall = float(difference.norm() / size.norm())
    # A row that is nearly nothing beside the others says nothing about the method.
    worst = float((difference / size.clamp_min(0.05 * float(size.pow(2).mean().sqrt()))).max())
    return max(overall, worst / 4.0)
