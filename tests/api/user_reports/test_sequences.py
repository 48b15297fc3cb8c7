"""Reports about packed sequences: empty ones, rows of none, very many."""

from __future__ import annotations

import pytest
import torch

from flash_attn_rocm import flash_attn_varlen_func
from flash_attn_rocm.errors import KernelUnavailableError
from tests.api.attention_reference import attention_fp64
from tests.api.features import cumulative
from tests.api.user_reports.calls import attend, close, largest_varlen_headdim, normal


@pytest.mark.parametrize("headdim", [64, 128, 256])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads_k", [4, 2])
def test_b10_sequences_of_length_zero(device: str, headdim: int, causal: bool, heads_k: int) -> None:
    """B10 (flash-attention 2421): NaN in dk and dv where a sequence has no queries; the last one is empty too."""
    lengths_q, lengths_k = [0, 5, 0, 7], [3, 5, 0, 0]
    q = normal(12, 4, headdim).to(device).requires_grad_()
    k, v = (normal(8, heads_k, headdim, seed=seed).to(device).requires_grad_() for seed in (1, 2))
    bounds = cumulative(lengths_q).to(device), cumulative(lengths_k).to(device)
    if headdim > largest_varlen_headdim():
        with pytest.raises(KernelUnavailableError, match=f"head dim is {headdim}; .* have head dims: "):
            flash_attn_varlen_func(q, k, v, *bounds, 7, 5, causal=causal)
        return
    out = flash_attn_varlen_func(q, k, v, *bounds, 7, 5, causal=causal)
    exact, _ = attention_fp64(*(t.detach().cpu()[None] for t in (q[:5], k[3:], v[3:])), causal=causal)
    close(out[:5].detach(), exact[0])
    assert (out[5:] == 0).all()
    dq, dk, dv = torch.autograd.grad(out.float().sum(), [q, k, v])
    assert all(torch.isfinite(gradient).all() for gradient in (dq, dk, dv))
    assert (dk[:3] == 0).all()
    assert (dv[:3] == 0).all()
    assert (dq[5:] == 0).all()


def test_b12_rows_after_the_last_sequence_do_no_harm(device: str) -> None:
    """B12 (flash-attention 1228): they hold NaN; the others' results and gradients are right."""
    q, k, v = (normal(100, 2, 64, seed=seed) for seed in range(3))
    leaves = [tensor.to(device).requires_grad_() for tensor in (q, k, v)]
    with torch.no_grad():
        for leaf in leaves:
            leaf[80:] = float("nan")
    bounds = cumulative([30, 50]).to(device)
    out = flash_attn_varlen_func(*leaves, bounds, bounds, 50, 50, causal=True)
    exact = [attention_fp64(*(t[None, a:b] for t in (q, k, v)), causal=True)[0][0] for a, b in ((0, 30), (30, 80))]
    close(out[:80].detach(), torch.cat(exact))
    gradients = torch.autograd.grad(out[:80].float().sum(), leaves)
    assert all(torch.isfinite(gradient[:80]).all() for gradient in gradients)
    assert all((gradient[80:] == 0).all() for gradient in gradients)


def test_b15_many_short_sequences(device: str) -> None:
    """B15d (flash-attention 2260): 66,400 heads in all, more than a grid's second and third dimension can have."""
    q, k, v = (normal(8300, 1, 8, 8, seed=seed) for seed in range(3))
    out, _ = attend(device, q, k, v)
    assert torch.equal(out.cpu(), v)
