"""Reports about heads that share keys, and odd head dims."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from flash_attn_rocm import flash_attn_func, flash_attn_with_kvcache
from flash_attn_rocm.errors import InputError
from flash_attn_rocm.flash_attn_interface import _flash_attn_forward
from tests.api.attention_reference import attention_fp64
from tests.api.user_reports.calls import attend, close, ints, normal


@pytest.mark.parametrize(("heads", "heads_k"), [(6, 6), (6, 3), (6, 1), (9, 3)])
@pytest.mark.parametrize("seqlen_q", [1, 70])
def test_b17_grouped_heads(device: str, heads: int, heads_k: int, seqlen_q: int) -> None:
    """B17 (flash-attention 1537): out and lse also where one query is taken as a group of rows; dk, dv are sums."""
    q = normal(2, seqlen_q, heads, 64)
    k, v = (normal(2, 90, heads_k, 64, seed=seed) for seed in (1, 2))
    out, lse = attend(device, q, k, v)
    exact, exact_lse = attention_fp64(q, k, v)
    close(out, exact)
    assert out.is_contiguous()
    assert lse.shape == (2, heads, seqlen_q)
    torch.testing.assert_close(lse.cpu().double(), exact_lse, atol=1e-4, rtol=1e-5)
    leaves = [tensor.to(device).requires_grad_() for tensor in (q, k, v)]
    doubles = [tensor.double().requires_grad_() for tensor in (q, k, v)]
    got = torch.autograd.grad(flash_attn_func(*leaves).sum(), leaves)
    for one, other in zip(got, torch.autograd.grad(attention_fp64(*doubles)[0].sum(), doubles), strict=True):
        close(one, other, factor=3.0)


@pytest.mark.parametrize("heads_k", [1, 2, 6])
@pytest.mark.parametrize(
    "arguments", [{"causal": True}, {"window_size": (40, 0)}, {}], ids=["causal", "window", "full"]
)
def test_b17_decoding_with_grouped_heads(device: str, heads_k: int, arguments: dict[str, Any]) -> None:
    """B17: one query a sequence; heads that share keys become rows, of which a causal mask must hide nothing."""
    q = normal(2, 1, 6, 64)
    caches = [normal(2, 90, heads_k, 64, seed=seed) for seed in (1, 2)]
    lengths = [90, 33]
    out, lse = flash_attn_with_kvcache(
        q.to(device),
        *(cache.to(device) for cache in caches),
        cache_seqlens=ints(device, lengths),
        return_softmax_lse=True,
        **arguments,
    )
    names = {"window_size": "window"}
    plain = {names.get(key, key): value for key, value in arguments.items()}
    for b, length in enumerate(lengths):
        parts = [cache[b : b + 1, :length] for cache in caches]
        exact, exact_lse = attention_fp64(q[b : b + 1], *parts, **plain)
        close(out[b : b + 1], exact)
        torch.testing.assert_close(lse[b : b + 1].cpu().double(), exact_lse, atol=1e-4, rtol=1e-5)


def test_b17_heads_that_do_not_divide_are_refused(device: str) -> None:
    """B17."""
    with pytest.raises(InputError, match=r"nheads of q \(6\) must be a multiple of nheads of k and v \(4\)"):
        attend(device, normal(1, 5, 6, 64), *[normal(1, 5, 4, 64)] * 2)


def test_91_head_dims_that_are_no_multiple_of_8(device: str) -> None:
    """A91 (flash-attention 1347): the low-level function refuses them upstream."""
    q, k, v = (normal(1, 20, 2, 37, seed=seed) for seed in range(3))
    on = [tensor.to(device) for tensor in (q, k, v)]
    out, *_ = _flash_attn_forward(*on, 0.0, 37**-0.5, False, -1, -1, 0.0, None, False)
    exact, _ = attention_fp64(q, k, v)
    close(out, exact)
