"""Reports about rows that see no key, causal masks with other lengths of queries than of keys, windows."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from flash_attn_rocm import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache
from tests.api.attention_reference import attention_fp64
from tests.api.features import cumulative, shuffled_pages
from tests.api.user_reports.calls import attend, close, ints, normal


@pytest.mark.parametrize("path", ["no keys", "masked rows", "varlen", "cache", "empty cache entry", "paged"])
def test_b0_rows_that_see_no_key_are_zero_with_lse_minus_infinity(device: str, path: str) -> None:
    """B0: upstream gives +inf or -inf, depending on the path that a call takes."""
    q, kv = normal(2, 6, 2, 64).to(device), normal(2, 4, 2, 64, seed=1).to(device)
    if path == "no keys":
        out, lse = attend(device, q, kv[:, :0], kv[:, :0])
        assert (out == 0).all()
        assert torch.isneginf(lse).all()
        return
    if path == "masked rows":
        out, lse = attend(device, q, kv, kv, causal=True)
        rows, row_lse = out[:, :2], lse[:, :, :2]
        assert torch.isfinite(lse[:, :, 2:]).all()
    elif path == "varlen":
        bounds = [cumulative(lengths).to(device) for lengths in ([6, 6], [4, 0])]
        out, lse, _ = flash_attn_varlen_func(q.reshape(12, 2, 64), *[kv[0]] * 2, *bounds, 6, 4, return_attn_probs=True)
        rows, row_lse = out[6:], lse[:, 6:]
        assert torch.isfinite(lse[:, :6]).all()
    else:
        arguments: dict[str, Any] = {"cache_seqlens": ints(device, [4, 4] if path == "cache" else [0, 4])}
        if path == "paged":
            pages, table = shuffled_pages(torch.Generator().manual_seed(0), [kv.cpu()], 16)
            arguments["block_table"] = table.to(device)
            kv = pages[0].to(device)
        out, lse = flash_attn_with_kvcache(
            q, kv, kv.clone(), causal=path == "cache", return_softmax_lse=True, **arguments
        )
        rows, row_lse = (out[:, :2], lse[:, :, :2]) if path == "cache" else (out[0], lse[0])
        assert torch.isfinite(lse[1, :, 2:]).all()
    assert (rows == 0).all()
    assert torch.isneginf(row_lse).all()


def test_b1_causal_with_more_queries_than_keys(device: str) -> None:
    """B1 (flash-attention 1778): of 4 queries on 2 keys, two see nothing, one the first key, one both."""
    q, k, v = normal(1, 4, 2, 64), normal(1, 2, 2, 64, seed=1), normal(1, 2, 2, 64, seed=2)
    out, lse = attend(device, q, k, v, causal=True)
    assert (out[:, :2] == 0).all()
    assert torch.isinf(lse[:, :, :2]).all()
    assert torch.equal(out[:, 2].cpu(), v[:, 0])
    exact, _ = attention_fp64(q, k, v, causal=True)
    close(out, exact)


@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(113, 203), (203, 113), (1024, 1023), (2048, 1024)])
def test_b1_causal_lengths(device: str, seqlen_q: int, seqlen_k: int) -> None:
    """B1: one head; half of the last one's output is zero, as intended."""
    q, k, v = normal(1, seqlen_q, 1, 64), normal(1, seqlen_k, 1, 64, seed=1), normal(1, seqlen_k, 1, 64, seed=2)
    out, lse = attend(device, q, k, v, causal=True)
    keep = torch.ones(seqlen_q, seqlen_k, dtype=torch.bool).tril(seqlen_k - seqlen_q)
    scores = (q[0, :, 0].double() @ k[0, :, 0].double().T / 8).masked_fill(~keep, -math.inf)
    exact = torch.nan_to_num(torch.softmax(scores, -1)) @ v[0, :, 0].double()
    close(out[0, :, 0], exact)
    torch.testing.assert_close(lse[0, 0].cpu().double(), torch.logsumexp(scores, -1), atol=1e-4, rtol=1e-5)
    assert (out[0, : max(0, seqlen_q - seqlen_k)] == 0).all()


def test_b1_gradients_of_rows_that_see_nothing_are_zero(device: str) -> None:
    """B1: dq of the blind rows is 0, dk and dv are finite."""
    leaves = [normal(1, n, 2, 64, seed=n).to(device).requires_grad_() for n in (4, 2, 3)]
    leaves[2] = leaves[2][:, :2].detach().requires_grad_()
    out = flash_attn_func(*leaves, causal=True)
    dq, dk, dv = torch.autograd.grad(out.float().sum(), leaves)
    assert (dq[:, :2] == 0).all()
    assert torch.isfinite(dk).all()
    assert torch.isfinite(dv).all()


def test_b2_causal_with_fewer_queries_than_keys(device: str) -> None:
    """B2 (pytorch 108108): row 0 of 2 sees keys 0 to 3 of 5; torch's own is_causal would show it key 0 alone."""
    q, k, v = normal(1, 2, 2, 64), normal(1, 5, 2, 64, seed=1), normal(1, 5, 2, 64, seed=2)
    out, _ = attend(device, q, k, v, causal=True)
    first, _ = attention_fp64(q[:, :1], k[:, :4], v[:, :4])
    second, _ = attention_fp64(q[:, 1:], k, v)
    close(out, torch.cat([first, second], dim=1))


@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(100, 100), (30, 100), (100, 30)])
@pytest.mark.parametrize("window", [(15, 0), (20, 20), (200, 200), (0, 0)])
def test_b18_windows_are_inclusive(device: str, seqlen_q: int, seqlen_k: int, window: tuple[int, int]) -> None:
    """B18 (transformers 39408): (W - 1, 0) sees W tokens; windows are aligned bottom-right."""
    q = normal(1, seqlen_q, 2, 64)
    k, v = (normal(1, seqlen_k, 2, 64, seed=seed) for seed in (1, 2))
    out, _ = attend(device, q, k, v, window_size=window)
    exact, exact_lse = attention_fp64(q, k, v, window=window)
    close(out, exact)
    assert (out.cpu().transpose(1, 2)[torch.isneginf(exact_lse)] == 0).all()
    if window == (200, 200):
        torch.testing.assert_close(out, attend(device, q, k, v)[0], atol=2.0**-7, rtol=0)
    if window == (0, 0) and seqlen_q == seqlen_k:
        assert torch.equal(out.cpu(), v)
