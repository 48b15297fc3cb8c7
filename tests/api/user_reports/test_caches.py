"""Reports about KV caches, whole and in pages."""

from __future__ import annotations

import os

import pytest
import torch

from flash_attn_rocm import flash_attn_varlen_func, flash_attn_with_kvcache
from flash_attn_rocm.errors import InputError, KernelUnavailableError
from tests.api.attention_reference import attention_fp64
from tests.api.features import cumulative, shuffled_pages
from tests.api.user_reports.calls import close, ints, normal


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
