"""Strides and extents beyond 31 bits give right answers or an error. Memory is sparse: few pages are touched."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.kernels.feature_reference import Features, check_result
from tests.kernels.test_features import SCALE, load_ops, normal

BEYOND = 2**31
FEATURES = Features(scale=SCALE)


def strided(values: Tensor, stride: tuple[int, ...], device: str) -> Tensor:
    """The values in memory that nothing else of is touched."""
    elements = sum((size - 1) * step for size, step in zip(values.shape, stride, strict=True)) + 1
    view = torch.empty(elements, dtype=values.dtype, device=device).as_strided(values.shape, stride)
    view.copy_(values)
    return view


def test_batch_strides_beyond_32_bits(kernel_device: str) -> None:
    """B15a of the user reports: strides that upstream narrows to 32 bits."""
    q, k, v = normal(2, 5, 1, 64), normal(2, 16, 1, 64, seed=1), normal(2, 16, 1, 64, seed=2)
    far = (BEYOND + 128, 64, 64, 1)
    out, lse, _ = load_ops().fwd(
        q.to(kernel_device), strided(k, far, kernel_device), strided(v, far, kernel_device), softmax_scale=SCALE
    )
    for b in range(2):
        check_result(out[b], lse[b], q[b], k[b], v[b], FEATURES, f"batch entry {b}")


def test_a_head_that_spans_more_than_2_gib(kernel_device: str) -> None:
    """B15b: rows of one head 32 MiB apart; the kernels' offsets within a head are 32-bit, so it is copied."""
    q, k, v = normal(1, 5, 1, 64), normal(1, 70, 1, 64, seed=1), normal(1, 70, 1, 64, seed=2)
    far = (70 * 2**24, 2**24, 64, 1)
    out, lse, _ = load_ops().fwd(
        q.to(kernel_device), strided(k, far, kernel_device), strided(v, far, kernel_device), softmax_scale=SCALE
    )
    check_result(out[0], lse[0], q[0], k[0], v[0], FEATURES, "a far head")


def test_a_cache_with_batch_strides_beyond_32_bits(kernel_device: str) -> None:
    q, k, v = normal(2, 1, 2, 64), normal(2, 40, 1, 64, seed=1), normal(2, 40, 1, 64, seed=2)
    new = normal(2, 1, 1, 64, seed=3)
    far = (BEYOND, 64, 64, 1)
    k_cache, v_cache = strided(k, far, kernel_device), strided(v, far, kernel_device)
    lengths = torch.tensor([39, 7], dtype=torch.int32, device=kernel_device)
    out, lse = load_ops().kvcache_fwd(
        q.to(kernel_device),
        k_cache,
        v_cache,
        new.to(kernel_device),
        new.to(kernel_device),
        cache_seqlens=lengths,
        softmax_scale=SCALE,
    )
    for b, length in enumerate((39, 7)):
        assert torch.equal(k_cache[b, length].cpu(), new[b, 0])
        keys, values = torch.cat([k[b, :length], new[b]]), torch.cat([v[b, :length], new[b]])
        check_result(out[b], lse[b], q[b], keys, values, FEATURES, f"batch entry {b}")


def test_a_cache_whose_heads_span_more_than_2_gib_is_an_error(kernel_device: str) -> None:
    q, k = normal(1, 1, 1, 64), normal(1, 70, 1, 64)
    far = strided(k, (70 * 2**24, 2**24, 64, 1), kernel_device)
    with pytest.raises(RuntimeError, match="one head of the cache spans more than 2 GiB"):
        load_ops().kvcache_fwd(q.to(kernel_device), far, far.clone(), softmax_scale=SCALE)


def test_queries_whose_copy_spans_more_than_2_gib_are_an_error(kernel_device: str) -> None:
    """Batch entries that do not follow each other are copied for decoding; the copy's rows are all heads long."""
    q = torch.empty(524_290 * 32 * 128, dtype=torch.bfloat16, device=kernel_device)
    q = q.as_strided((2, 524_289, 32, 128), (4096, 4096, 128, 1))
    k = torch.zeros(2, 16, 32, 128, dtype=q.dtype, device=kernel_device)
    with pytest.raises(RuntimeError, match=r"q has shape .* spans more than 2 GiB"):
        load_ops().kvcache_fwd(q, k, k.clone(), softmax_scale=SCALE)


def test_a_cache_whose_entries_are_no_whole_number_of_rows_apart_is_an_error(kernel_device: str) -> None:
    q = normal(2, 1, 1, 64).to(kernel_device)
    odd = torch.zeros(20 * 64 + 8, dtype=q.dtype, device=kernel_device).as_strided((2, 10, 1, 64), (648, 64, 64, 1))
    with pytest.raises(RuntimeError, match=r"k_cache has strides 648 .* same whole number of rows in both"):
        load_ops().kvcache_fwd(q, odd, odd.clone(), softmax_scale=SCALE)


def test_dropout_in_several_launches_is_an_error(kernel_device: str) -> None:
    """They would repeat random numbers."""
    q, k = normal(2, 5, 1, 64).to(kernel_device), normal(2, 16, 1, 64)
    far = strided(k, (BEYOND + 128, 64, 64, 1), kernel_device)
    state = torch.tensor([1, 2], device=kernel_device)
    with pytest.raises(RuntimeError, match="dropout with 2 batch entries needs several launches"):
        load_ops().fwd(q, far, far, None, state, softmax_scale=SCALE, dropout_p=0.5)
