"""Reports about softcap, ALiBi, dropout."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from flash_attn_rocm import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache
from tests.api.attention_reference import attention_fp64
from tests.api.features import cumulative
from tests.api.user_reports.calls import attend, close, normal


@pytest.mark.parametrize("function", ["fixed", "varlen", "cache"])
def test_b4_softcap_acts(device: str, function: str) -> None:
    """B4 (vllm 10500): CK's wrapper upstream ignores softcap and returns the uncapped answer."""
    q, v = normal(1, 128, 4, 64) * 4, normal(1, 128, 4, 64, seed=1)
    exact, _ = attention_fp64(q, q, v, softcap=5.0)
    uncapped, _ = attention_fp64(q, q, v)
    assert (exact - uncapped).abs().max() > 1
    on = [tensor.to(device) for tensor in (q, q, v)]
    bounds = cumulative([128]).to(device)
    out = {
        "fixed": lambda: flash_attn_func(*on, softcap=5.0),
        "varlen": lambda: flash_attn_varlen_func(*(t[0] for t in on), bounds, bounds, 128, 128, softcap=5.0)[None],
        "cache": lambda: flash_attn_with_kvcache(*on, cache_seqlens=128, softcap=5.0),
    }[function]()
    close(out, exact, factor=4.0)


@pytest.mark.parametrize("per_batch", [False, True])
def test_b19_alibi(device: str, per_batch: bool) -> None:
    """B19 (flash-attention 907): causal, slope * j gives the same out; not causal, the distance counts."""
    slopes = torch.tensor([0.25, 0.0625, 0.5, 0.125])
    slopes = torch.stack([slopes, slopes.flip(0)]) if per_batch else slopes
    q, k, v = normal(2, 40, 4, 64), normal(2, 60, 2, 64, seed=1), normal(2, 60, 2, 64, seed=2)
    causal, _ = attend(device, q, k, v, causal=True, alibi_slopes=slopes.to(device))
    bias = slopes.reshape(-1, 4, 1, 1).double() * torch.arange(60)
    keep = torch.ones(40, 60, dtype=torch.bool).tril(20)
    scores = torch.einsum("bqhd,bkhd->bhqk", q.double(), k.double().repeat_interleave(2, 2)) / 8 + bias
    weights = torch.softmax(scores.masked_fill(~keep, -math.inf), -1)
    close(causal, torch.einsum("bhqk,bkhd->bqhd", weights, v.double().repeat_interleave(2, 2)))
    full, lse = attend(device, q, k, v, alibi_slopes=slopes.to(device))
    exact, exact_lse = attention_fp64(q, k, v, slopes=slopes)
    close(full, exact)
    torch.testing.assert_close(lse.cpu().double(), exact_lse, atol=1e-3, rtol=1e-4)


def test_b19_alibi_agrees_between_functions(device: str) -> None:
    """B19 (flash-attention 1585): training, varlen and decoding use the same bias; one causal query keeps it."""
    slopes = torch.tensor([0.25, 0.0625]).to(device)
    q, k, v = (normal(1, n, 2, 64, seed=n).to(device) for n in (1, 50, 51))
    v = v[:, :50]
    expected, _ = attention_fp64(q.cpu(), k.cpu(), v.cpu(), causal=True, slopes=slopes.cpu())
    bounds = cumulative([1]).to(device), cumulative([50]).to(device)
    arguments: dict[str, Any] = {"causal": True, "alibi_slopes": slopes}
    close(flash_attn_func(q, k, v, **arguments), expected)
    close(flash_attn_varlen_func(q[0], k[0], v[0], *bounds, 1, 50, **arguments)[None], expected)
    close(flash_attn_with_kvcache(q, k, v, cache_seqlens=50, **arguments), expected)


@pytest.mark.parametrize(("p", "kept_of_256"), [(0.17, 212), (0.001, 255), (0.5, 128)])
def test_b20_dropout_keeps_the_quantised_share(device: str, p: float, kept_of_256: int) -> None:
    """B20: a weight is kept iff its byte is at most floor(255 * (1 - p)): p = 0.001 drops 1 of 256, not 1 of 1000."""
    q, k = normal(2, 64, 4, 64), normal(2, 64, 4, 64, seed=1)
    v = torch.eye(64, dtype=torch.bfloat16)[None, :, None].expand(2, 64, 4, 64)
    torch.manual_seed(0)
    out, _, random_map = flash_attn_func(
        *(tensor.to(device) for tensor in (q, k, v)), dropout_p=p, return_attn_probs=True
    )
    kept = random_map.cpu() <= kept_of_256 - 1
    assert torch.equal(out.cpu().transpose(1, 2) != 0, kept)
    share = kept_of_256 / 256
    assert abs(kept.double().mean().item() - share) < 5 * math.sqrt(share * (1 - share) / kept.numel())
    weights = torch.softmax(torch.einsum("bqhd,bkhd->bhqk", q.double(), k.double()) / 8, -1) * kept / (1 - p)
    close(out, weights.transpose(1, 2))


def test_b20_a_seed_gives_one_mask_and_another_another(device: str) -> None:
    """B20: the same for all heads and batch entries taken together, different between them."""
    q, k, v = (normal(2, 64, 2, 64, seed=seed).to(device) for seed in range(3))
    results = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        results.append(flash_attn_func(q, k, v, dropout_p=0.5, return_attn_probs=True))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][2], results[1][2])
    assert not torch.equal(results[0][0], results[2][0])
    maps = results[0][2].reshape(4, -1)
    assert len({tuple(row.tolist()) for row in maps}) == 4


def test_b20_the_backward_pass_drops_the_same_weights(device: str) -> None:
    """B20: the gradient of v is the sum of the weights that were used; it shows which were."""
    q, k = normal(1, 40, 2, 64).to(device), normal(1, 64, 2, 64, seed=1).to(device)
    v = torch.eye(64, dtype=torch.bfloat16)[None, :, None].expand(1, 64, 2, 64).to(device).requires_grad_()
    torch.manual_seed(0)
    out = flash_attn_func(q, k, v, dropout_p=0.5)
    (grad,) = torch.autograd.grad(out.sum(), v)
    close(grad[..., 0], out.detach().cpu().double().sum(1).transpose(1, 2), factor=8.0)
