"""What users reported about FlashAttention-2, each with the right answer; ids B0 to B25 are those of the collection.

Each case runs on every backend of BACKENDS. Sources: threads of
Dao-AILab/flash-attention, ROCm and vllm-project, named with each case.
"""

from __future__ import annotations

import math
import os
from typing import Any

import pytest
import torch

from flash_attn_rocm import (
    flash_attn_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_with_kvcache,
    paths,
)
from flash_attn_rocm.errors import InputError, KernelUnavailableError
from flash_attn_rocm.flash_attn_interface import _flash_attn_forward
from flash_attn_rocm.kernel_manifest import read_manifest
from tests.api.attention_reference import attention_fp64
from tests.api.features import cumulative, shuffled_pages
from tests.conftest import EMULATED_GPU

BACKENDS = ["sdpa", "ck"]


@pytest.fixture(params=BACKENDS)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The device on which this backend runs."""
    if request.param == "ck":
        return str(request.getfixturevalue("kernel_device"))
    monkeypatch.setenv("FLASH_ATTN_ROCM_BACKEND", "sdpa")
    return "cpu"


def largest_varlen_headdim() -> int:
    """256, or what the installed kernels have where they are used: a small profile has fewer."""
    if os.environ["FLASH_ATTN_ROCM_BACKEND"] == "sdpa":
        return 256
    kernels = read_manifest(paths.find_manifests()[EMULATED_GPU])["kernels"]
    return max(kernel["hdim_q"] for kernel in kernels if kernel["mode"] == "group" and kernel["op"] == "fmha_fwd")


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def close(got: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype = torch.bfloat16, factor: float = 2.0) -> None:
    """Within `factor` roundings of the largest value."""
    rounding = 2.0**-8 if dtype is torch.bfloat16 else 2.0**-11
    error = (got.cpu().double() - exact).abs().max().item() if exact.numel() else 0.0
    assert error <= factor * rounding * max(1.0, exact.abs().max().item()), error


def attend(device: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **arguments: Any) -> tuple[Any, Any]:
    out, lse, _ = flash_attn_func(q.to(device), k.to(device), v.to(device), return_attn_probs=True, **arguments)
    return out, lse


def ints(device: str, values: list[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device=device)


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


def test_b5_a_cache_without_lengths_is_used_whole(device: str) -> None:
    """B5: CK's wrapper upstream takes its length as 0."""
    q, k, v = normal(2, 1, 4, 64), normal(2, 256, 4, 64, seed=1), normal(2, 256, 4, 64, seed=2)
    exact, _ = attention_fp64(q, k, v)
    close(flash_attn_with_kvcache(*(tensor.to(device) for tensor in (q, k, v))), exact)


@pytest.mark.parametrize("page_size", [0, 16, 128])
def test_b7_unused_slots_never_leak(device: str, page_size: int) -> None:
    """B7 (flash-attention 2374, 1745): slots beyond the lengths hold NaN."""
    q = normal(2, 3, 4, 64)
    caches = [normal(2, 256, 2, 64, seed=seed) for seed in (1, 2)]
    lengths = [100, 7]
    for cache in caches:
        for b, length in enumerate(lengths):
            cache[b, length:] = float("nan")
    exact = torch.cat(
        [
            attention_fp64(q[b : b + 1], *(c[b : b + 1, :n] for c in caches), causal=True)[0]
            for b, n in enumerate(lengths)
        ]
    )
    arguments = {}
    if page_size:
        caches, table = shuffled_pages(torch.Generator().manual_seed(0), caches, page_size)
        arguments["block_table"] = table.to(device)
    on = [cache.to(device) for cache in caches]
    out = flash_attn_with_kvcache(q.to(device), *on, cache_seqlens=ints(device, lengths), causal=True, **arguments)
    close(out, exact)


def test_b8_a_cache_of_interleaved_layers_with_large_strides(device: str) -> None:
    """B8 (flash-attention 772): batch stride of 2^30 elements; only the rows of cache_batch_idx may change."""
    shape, strides = (6, 32, 2, 64), (2**30 + 128, 128, 64, 1)
    caches = [torch.empty(5 * strides[0] + 32 * 128, dtype=torch.bfloat16, device=device) for _ in range(2)]
    views = [cache.as_strided(shape, strides) for cache in caches]
    for view, seed in zip(views, (1, 2), strict=True):
        view.copy_(normal(*shape, seed=seed))
    q, new = normal(4, 1, 2, 64).to(device), normal(4, 1, 2, 64, seed=3).to(device)
    lengths, rows = [3, 31, 0, 17], [1, 2, 3, 4]
    out = flash_attn_with_kvcache(
        q, *views, new, new, cache_seqlens=ints(device, lengths), cache_batch_idx=ints(device, rows)
    )
    for view, seed in zip(views, (1, 2), strict=True):
        expected = normal(*shape, seed=seed)
        for b, (row, length) in enumerate(zip(rows, lengths, strict=True)):
            expected[row, length] = new[b, 0].cpu()
        assert torch.equal(view.cpu(), expected)
    for b, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        exact, _ = attention_fp64(q[b : b + 1].cpu(), *(view[row, : length + 1][None].cpu() for view in views))
        close(out[b : b + 1], exact)


@pytest.mark.parametrize("page_size", [16, 32, 64, 100, 128, 256])
@pytest.mark.parametrize("function", ["cache", "varlen"])
def test_b9_pages_of_any_size_equal_a_dense_cache(device: str, page_size: int, function: str) -> None:
    """B9 (flash-attention 1579): upstream's CK takes multiples of 128 only; vLLM uses 16."""
    lengths = [130, 1, 300]
    q = normal(3, 2, 4, 64)
    dense = [normal(3, 300, 2, 64, seed=seed) for seed in (1, 2)]
    pages, table = shuffled_pages(torch.Generator().manual_seed(0), dense, page_size)
    on, table = [page.to(device) for page in pages], table.to(device)
    if page_size % 16 and os.environ["FLASH_ATTN_ROCM_BACKEND"] == "ck":
        with pytest.raises(KernelUnavailableError, match="the page size is 100; the CK kernels have multiples of 16"):
            flash_attn_with_kvcache(q.to(device), *on, block_table=table)
        return
    if function == "cache":
        out = flash_attn_with_kvcache(
            q.to(device), *on, cache_seqlens=ints(device, lengths), causal=True, block_table=table
        )
    else:
        bounds = cumulative([2, 2, 2]).to(device), cumulative(lengths).to(device)
        flat = q.reshape(6, 4, 64).to(device)
        out = flash_attn_varlen_func(flat, *on, *bounds, 2, 300, causal=True, block_table=table).view(3, 2, 4, 64)
    for b, length in enumerate(lengths):
        exact, _ = attention_fp64(q[b : b + 1], *(cache[b : b + 1, :length] for cache in dense), causal=True)
        close(out[b : b + 1], exact)


def test_b9_what_pages_cannot_do_is_refused() -> None:
    """B9 (flash-attention 2711): a length beyond the pages raises, as do dropout and a second choice of rows."""
    pages, table = torch.zeros(4, 16, 2, 64).half(), torch.tensor([[0, 1], [2, 3]], dtype=torch.int32)
    q = torch.zeros(2, 1, 2, 64).half()
    with pytest.raises(InputError, match=r"cache_seqlens\[0\] is 33; allowed: 0 to 32"):
        flash_attn_with_kvcache(q, pages, pages, cache_seqlens=ints("cpu", [33, 1]), block_table=table)
    with pytest.raises(InputError, match="cache_batch_idx and block_table are both given"):
        flash_attn_with_kvcache(q, pages, pages, cache_batch_idx=ints("cpu", [0, 1]), block_table=table)
    bounds = cumulative([1, 1]), cumulative([5, 5])
    with pytest.raises(InputError, match=r"dropout_p is 0\.1 with a block_table"):
        flash_attn_varlen_func(q[:, 0], pages, pages, *bounds, 1, 5, dropout_p=0.1, block_table=table)


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


VIEWS = {
    "packed": lambda q, k, v: torch.stack([q, k, v], dim=2).unbind(2),
    "heads first": lambda *t: [x.transpose(1, 2).contiguous().transpose(1, 2) for x in t],
    "last dim strided": lambda *t: [torch.stack([x, x], dim=-1)[..., 0] for x in t],
    "expanded batch": lambda q, k, v: [x[:1].expand(2, -1, -1, -1) for x in (q, k, v)],
    "expanded heads": lambda q, k, v: [q, *(x[:, :, :1].expand(-1, -1, 4, -1) for x in (k, v))],
}


@pytest.mark.parametrize("layout", VIEWS)
def test_b14_views_give_what_contiguous_tensors_give(device: str, layout: str) -> None:
    """B14 (flash-attention 1562, on AMD): a view of v with contiguous rows gave garbage."""
    q, k, v = (normal(2, 70, 4, 64, seed=seed).to(device) for seed in range(3))
    views = VIEWS[layout](q, k, v)
    torch.testing.assert_close(
        flash_attn_func(*views, causal=True),
        flash_attn_func(*(view.contiguous() for view in views), causal=True),
        atol=2.0**-7,
        rtol=0,
    )


def test_b14_gradients_of_views_and_from_expanded_ones(device: str) -> None:
    """B14: .sum().backward() hands down a gradient with strides of 0; those of packed tensors come packed."""
    qkv = normal(2, 40, 3, 4, 64).to(device).requires_grad_()
    (grad,) = torch.autograd.grad(flash_attn_qkvpacked_func(qkv, causal=True).sum(), qkv)
    leaf = qkv.detach().cpu().double().requires_grad_()
    exact_out, _ = attention_fp64(*leaf.unbind(2), causal=True)
    (exact,) = torch.autograd.grad(exact_out.sum(), leaf)
    close(grad, exact, factor=3.0)


def test_b15_batch_strides_beyond_32_bits(device: str) -> None:
    """B15a (flash-attention 1500): 2^31 + 128 elements from one batch entry to the next; memory is not touched."""
    strides = (2**31 + 128, 64, 64, 1)
    k, v = (
        torch.empty(strides[0] + 1024, dtype=torch.bfloat16, device=device).as_strided((2, 16, 1, 64), strides)
        for _ in range(2)
    )
    for tensor, seed in ((k, 1), (v, 2)):
        tensor.copy_(normal(2, 16, 1, 64, seed=seed))
    q = normal(2, 16, 1, 64)
    out, _ = attend(device, q, k, v)
    exact, _ = attention_fp64(q, k.cpu(), v.cpu())
    close(out, exact)


@pytest.mark.parametrize("rows", [2**16 + 65, 2**17 + 65], ids=["2 GiB", "4 GiB"])
def test_b15_one_head_that_spans_more_than_32_bits(device: str, rows: int) -> None:
    """B15b (flash-attention 1562): row stride of 16384; a window lets the queries see the last keys only."""
    k, v = (
        torch.zeros(rows * 16384, dtype=torch.bfloat16, device=device).as_strided(
            (1, rows, 1, 64), (rows * 16384, 16384, 64, 1)
        )
        for _ in range(2)
    )
    last = [normal(1, 64, 1, 64, seed=seed) for seed in (1, 2)]
    k[:, -64:], v[:, -64:] = (tensor.to(device) for tensor in last)
    q = normal(1, 1, 1, 64)
    out, _ = attend(device, q, k, v, window_size=(63, 0))
    exact, _ = attention_fp64(q, *last)
    close(out, exact)


def test_b15_many_short_sequences(device: str) -> None:
    """B15d (flash-attention 2260): 66,400 heads in all, more than a grid's second and third dimension can have."""
    q, k, v = (normal(8300, 1, 8, 8, seed=seed) for seed in range(3))
    out, _ = attend(device, q, k, v)
    assert torch.equal(out.cpu(), v)


def test_b15_a_gradient_with_a_wide_stride(monkeypatch: pytest.MonkeyPatch) -> None:
    """B15e (flash-attention 2611): rows of dout lie 9728 elements apart, 2^31 elements in all."""
    monkeypatch.setenv("FLASH_ATTN_ROCM_BACKEND", "sdpa")
    total, length = 221_000, 50
    q, k, v = (normal(total, 1, 8, seed=seed).requires_grad_() for seed in range(3))
    bounds = torch.arange(0, total + 1, length, dtype=torch.int32)
    out = flash_attn_varlen_func(q, k, v, bounds, bounds, length, length)
    wide = torch.zeros(total * 9728, dtype=torch.bfloat16).as_strided((total, 1, 8), (9728, 8, 1))
    wide[-length:] = normal(length, 1, 8, seed=3)
    got = torch.autograd.grad(out, [q, k, v], wide)
    doubles = [t.detach()[None, -length:].double().requires_grad_() for t in (q, k, v)]
    exact = torch.autograd.grad(attention_fp64(*doubles)[0], doubles, wide[None, -length:].double())
    for one, other in zip(got, exact, strict=True):
        assert (one[:-length] == 0).all()
        close(one[-length:], other[0], factor=3.0)


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


def test_b22_mixed_dtypes_under_autocast_are_explained(device: str) -> None:
    """B22 (unslothai 827): rotary embeddings and norms promote q and k to float32."""
    q = normal(1, 5, 2, 64)
    message = r"q torch\.float32, k torch\.float32, v torch\.bfloat16; allowed: .* Cast q, k and v first .*autocast"
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(InputError, match=message):
        attend(device, q.float(), q.float(), q)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_b23_compiles_with_views_of_a_packed_tensor(device: str, dynamic: bool) -> None:
    """B23 (ComfyUI 15044): strides of traced results must be the real ones; no multiple of a tile here."""
    torch._dynamo.reset()

    def layer(qkv: torch.Tensor) -> torch.Tensor:
        out = flash_attn_qkvpacked_func(qkv, causal=True)
        assert isinstance(out, torch.Tensor)
        return out.view(out.shape[0], out.shape[1], -1) + 1

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for seqlen in (70, 33):
        qkv = normal(2, seqlen, 3, 4, 64).to(device)
        torch.testing.assert_close(compiled(qkv), layer(qkv))


@pytest.mark.parametrize("function", ["fixed", "varlen"])
def test_b24_two_runs_are_bitwise_equal(device: str, function: str) -> None:
    """B24 (CK 3615): deterministic=True gives the same bits, backward too."""
    tensors = [normal(2, 70, heads, 64, seed=seed) for seed, heads in enumerate((4, 2, 2))]
    bounds = cumulative([70, 70]).to(device)

    def run() -> tuple[torch.Tensor, ...]:
        leaves = [tensor.to(device).requires_grad_() for tensor in tensors]
        if function == "fixed":
            out = flash_attn_func(*leaves, causal=True, deterministic=True)
        else:
            flat = [leaf.flatten(0, 1) for leaf in leaves]
            out = flash_attn_varlen_func(*flat, bounds, bounds, 70, 70, causal=True, deterministic=True)
        return out, *torch.autograd.grad(out.float().sum(), leaves)

    assert all(torch.equal(one, other) for one, other in zip(run(), run(), strict=True))


def test_b25_results_are_rounded_to_nearest_even(device: str) -> None:
    """B25: conversion modes differ between GPU families upstream; the mean of two neighbours is a tie, and tells."""
    q = torch.zeros(1, 64, 1, 64, dtype=torch.bfloat16)
    mantissas = torch.arange(64, dtype=torch.int16)
    first = (mantissas + 0x3F80).view(torch.bfloat16)
    second = (mantissas + 0x3F81).view(torch.bfloat16)
    v = torch.stack([first, second])[None, :, None]
    out, _ = attend(device, q, torch.zeros_like(v), v)
    expected = ((first.float() + second.float()) / 2).to(torch.bfloat16)
    assert torch.equal(out.cpu(), expected.expand_as(out))


def test_91_head_dims_that_are_no_multiple_of_8(device: str) -> None:
    """A91 (flash-attention 1347): the low-level function refuses them upstream."""
    q, k, v = (normal(1, 20, 2, 37, seed=seed) for seed in range(3))
    on = [tensor.to(device) for tensor in (q, k, v)]
    out, *_ = _flash_attn_forward(*on, 0.0, 37**-0.5, False, -1, -1, 0.0, None, False)
    exact, _ = attention_fp64(q, k, v)
    close(out, exact)
