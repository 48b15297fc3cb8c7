"""The varlen and KV-cache functions inside torch: torch.compile as one graph, autocast, no look at values on a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from flash_attn_rocm import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache
from flash_attn_rocm.errors import InputError
from tests.api.features import cumulative


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.fixture(autouse=True)
def _on_sdpa(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASH_ATTN_ROCM_BACKEND", "sdpa")
    torch._dynamo.reset()


def varlen(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_q: Any, cu_k: Any, max_q: int, max_k: int) -> Any:
    return flash_attn_varlen_func(q * 2, k, v, cu_q, cu_k, max_q, max_k, causal=True) + 1


def varlen_inputs(lengths_q: list[int], lengths_k: list[int]) -> list[Any]:
    tensors = [normal(sum(lengths_q), 4, 64), *(normal(sum(lengths_k), 2, 64, seed=seed) for seed in (1, 2))]
    return [*tensors, cumulative(lengths_q), cumulative(lengths_k), max(lengths_q), max(lengths_k)]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_varlen_compiles(dynamic: bool) -> None:
    compiled = torch.compile(varlen, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for lengths in (([5, 0, 30], [7, 3, 20]), ([9, 12, 3], [9, 12, 3])):
        tensors = varlen_inputs(*lengths)
        torch.testing.assert_close(compiled(*tensors), varlen(*tensors))


def test_varlen_training_step_compiles() -> None:
    q, k, v, *rest = varlen_inputs([5, 0, 30], [7, 3, 20])
    grads = []
    for function in (torch.compile(varlen, fullgraph=True, backend="aot_eager"), varlen):
        leaves = [tensor.clone().requires_grad_() for tensor in (q, k, v)]
        grads.append(torch.autograd.grad(function(*leaves, *rest).float().sum(), leaves))
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other)


def decode(
    q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, k: torch.Tensor, lengths: torch.Tensor, table: Any
) -> torch.Tensor:
    out = flash_attn_with_kvcache(
        q * 2, k_cache, v_cache, k, k + 1, cache_seqlens=lengths, block_table=table, causal=True
    )
    assert isinstance(out, torch.Tensor)
    return out + 1


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("paged", [False, True], ids=["dense", "paged"])
def test_decode_compiles(dynamic: bool, paged: bool) -> None:
    """The cache is written in place there too."""
    compiled = torch.compile(decode, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for batch, room in ((3, 64), (2, 96)):
        shape = (8 * batch, 16, 2, 64) if paged else (batch, room, 2, 64)
        table = torch.randperm(8 * batch).reshape(batch, 8).to(torch.int32) if paged else None
        lengths = torch.arange(batch, dtype=torch.int32) * 17
        results = []
        for function in (compiled, decode):
            caches = [normal(*shape, seed=seed) for seed in (1, 2)]
            out = function(normal(batch, 1, 4, 64), *caches, normal(batch, 1, 2, 64, seed=3), lengths, table)
            results.append((out, *caches))
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one, other)
        assert not torch.equal(results[0][1], normal(*shape, seed=1))


def test_dropout_compiles() -> None:
    def layer(q: torch.Tensor) -> Any:
        return flash_attn_func(q, q, q, dropout_p=0.5, return_attn_probs=True)

    q = normal(1, 40, 2, 64)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    out, _, random_map = compiled(q)
    scores = torch.einsum("bqhd,bkhd->bhqk", q.double(), q.double()) * 64**-0.5
    weights = torch.softmax(scores, -1) * (random_map <= 127) / 0.5
    expected = torch.einsum("bhqk,bkhd->bqhd", weights, q.double())
    assert (out.double() - expected).abs().max() < 4e-2
    assert not torch.equal(compiled(q)[2], random_map)


@pytest.mark.parametrize("arguments", [{}, {"softcap": 3.0}], ids=["fused", "explicit"])
@pytest.mark.parametrize("function", ["fixed", "varlen", "kvcache"])
def test_autocast_converts_nothing(function: str, arguments: dict[str, Any]) -> None:
    """fp16 tensors under autocast to bf16 are computed as ever; scores stay in float32."""
    q = normal(2, 20, 2, 64, dtype=torch.float16)
    flat, bounds = q.reshape(40, 2, 64), cumulative([20, 20])
    calls = {
        "fixed": lambda: flash_attn_func(q, q, q, **arguments),
        "varlen": lambda: flash_attn_varlen_func(flat, flat, flat, bounds, bounds, 20, 20, **arguments),
        "kvcache": lambda: flash_attn_with_kvcache(q, q, q, cache_seqlens=13, **arguments),
    }
    expected = calls[function]()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = calls[function]()
    assert got.dtype is torch.float16
    assert torch.equal(got, expected)


def test_float32_under_autocast_is_refused_and_explained() -> None:
    """User report B22: rotary embeddings and norms promote q and k to float32."""
    q = normal(1, 5, 2, 64)
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        pytest.raises(InputError, match=r"q torch\.float32, k torch\.float32"),
    ):
        flash_attn_func(q.float(), q.float(), q)


def test_kvcache_is_outside_of_autograd() -> None:
    q, cache = normal(1, 1, 2, 64).requires_grad_(), normal(1, 20, 2, 64)
    new = normal(1, 1, 2, 64, seed=1).requires_grad_()
    out = flash_attn_with_kvcache(q, cache, cache.clone(), new, new, cache_seqlens=4)
    assert not out.requires_grad
    assert not cache.requires_grad


META: dict[str, Any] = {
    "varlen": lambda: flash_attn_varlen_func(
        *(normal(n, 2, 64).to("meta") for n in (9, 12, 12)),
        *(cumulative([0, 0]).to("meta") for _ in range(2)),
        5,
        7,
        return_attn_probs=True,
    ),
    "kvcache": lambda: flash_attn_with_kvcache(
        *(normal(2, n, 2, 64).to("meta") for n in (3, 20, 20)),
        cache_seqlens=torch.zeros(2, dtype=torch.int32, device="meta"),
        return_softmax_lse=True,
    ),
}


@pytest.mark.parametrize("name", META)
def test_values_are_not_read_where_that_would_wait(name: str) -> None:
    """Meta tensors have no values: a call that read lengths, or whose shapes depended on them, would fail."""
    out, lse, *_ = META[name]()
    assert out.shape == {"varlen": (9, 2, 64), "kvcache": (2, 3, 2, 64)}[name]
    assert lse.shape == {"varlen": (2, 9), "kvcache": (2, 2, 3)}[name]
