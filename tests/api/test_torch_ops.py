"""The ops for several lengths and for KV caches inside torch, and dropout: opcheck, torch.compile, autograd."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from flash_attn_rocm import dropout, flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache, ops
from flash_attn_rocm.backends import ck
from flash_attn_rocm.errors import KernelUnavailableError
from flash_attn_rocm.flash_attn_interface import _flash_attn_varlen_forward
from tests.api.attention_reference import attention_fp64
from tests.api.features import cumulative

LENGTHS_Q, LENGTHS_K = [0, 5, 40, 70, 7], [3, 5, 33, 90, 0]


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def varlen_inputs(device: str, grad: bool = False) -> list[torch.Tensor]:
    """q (Tq, 4, 64), k and v (Tk, 2, 64), and where their sequences begin."""
    tensors = [normal(sum(LENGTHS_Q), 4, 64), *(normal(sum(LENGTHS_K), 2, 64, seed=seed) for seed in (1, 2))]
    tensors = [tensor.to(device).requires_grad_(grad) for tensor in tensors]
    return [*tensors, cumulative(LENGTHS_Q).to(device), cumulative(LENGTHS_K).to(device)]


LONGEST = {"max_seqlen_q": max(LENGTHS_Q), "max_seqlen_k": max(LENGTHS_K)}


def state(device: str) -> torch.Tensor:
    return torch.tensor([5, 6], device=device)


@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("arguments", [{}, {"return_dropout_map": True}], ids=["no map", "map"])
def test_opcheck_of_dropout(kernel_device: str, grad: bool, arguments: dict[str, Any]) -> None:
    ops.load()
    q, k = (normal(2, n, 2, 64).to(kernel_device).requires_grad_(grad) for n in (40, 50))
    torch.library.opcheck(
        torch.ops.flash_attn_rocm.fwd.default,
        (q, k, k.detach().clone(), None, state(kernel_device)),
        {"softmax_scale": 0.125, "dropout_p": 0.5, **arguments},
    )


@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize(
    "arguments",
    [{}, {"dropout_p": 0.5, "return_dropout_map": True}, {"window_right": 0}],
    ids=["full", "map", "causal"],
)
def test_opcheck_of_varlen(kernel_device: str, grad: bool, arguments: dict[str, Any]) -> None:
    ops.load()
    torch.library.opcheck(
        torch.ops.flash_attn_rocm.varlen_fwd.default,
        (*varlen_inputs(kernel_device, grad), None, None, None, state(kernel_device)),
        {"softmax_scale": 0.125, **LONGEST, **arguments},
    )


@pytest.mark.parametrize("appended", [0, 3])
@pytest.mark.parametrize("paged", [False, True], ids=["dense", "paged"])
def test_opcheck_of_kvcache(kernel_device: str, appended: int, paged: bool) -> None:
    """Its schema says that the caches are written to, and nothing else is."""
    ops.load()
    shape = (8, 16, 2, 64) if paged else (2, 64, 2, 64)
    table = torch.randperm(8).reshape(2, 4).to(torch.int32).to(kernel_device) if paged else None
    new = [normal(2, appended, 2, 64, seed=3).to(kernel_device)] * 2 if appended else [None, None]
    lengths = torch.tensor([9, 50], dtype=torch.int32, device=kernel_device)
    torch.library.opcheck(
        torch.ops.flash_attn_rocm.kvcache_fwd.default,
        (
            normal(2, 3, 4, 64).to(kernel_device),
            *(normal(*shape, seed=seed).to(kernel_device) for seed in (1, 2)),
            *new,
            *[None] * 2,
            lengths,
            *[None] * 2,
            table,
        ),
        {"softmax_scale": 0.125, "window_right": 0},
    )


@pytest.mark.parametrize(
    "arguments", [{}, {"causal": True}, {"window_size": (20, 5)}, {"softmax_scale": -0.2}], ids=str
)
def test_varlen_gradients_of_the_kernels_match_fp64(kernel_device: str, arguments: dict[str, Any]) -> None:
    q, k, v, *bounds = varlen_inputs(kernel_device, grad=True)
    grad_out = normal(*q.shape, seed=4)
    out = flash_attn_varlen_func(q, k, v, *bounds, *LONGEST.values(), **arguments)
    got = torch.autograd.grad(out, [q, k, v], grad_out.to(kernel_device))
    doubles = [tensor.detach().cpu().double().requires_grad_() for tensor in (q, k, v)]
    names = {"window_size": "window", "softmax_scale": "scale"}
    plain = {names.get(key, key): value for key, value in arguments.items()}
    parts = [t.split(lengths) for t, lengths in zip(doubles, (LENGTHS_Q, LENGTHS_K, LENGTHS_K), strict=True)]
    outs = [attention_fp64(*(part[b][None] for part in parts), **plain)[0][0] for b in range(len(LENGTHS_Q))]
    exact = torch.autograd.grad(torch.cat(outs), doubles, grad_out.double())
    for one, other in zip(got, exact, strict=True):
        assert (one.cpu().double() - other).abs().max() <= 3 * 2.0**-8 * other.abs().max().clamp(min=1.0)


@pytest.mark.parametrize("seqlens", [(40, 64), (100, 130)])
def test_kernels_drop_by_the_map_of_the_random_state(kernel_device: str, seqlens: tuple[int, int]) -> None:
    """The backward pass makes the map anew from the state; what the kernels return must be the same."""
    ops.load()
    q, k = (normal(2, n, 3, 64, seed=n).to(kernel_device) for n in seqlens)
    _, _, got = torch.ops.flash_attn_rocm.fwd(
        q, k, k, None, state(kernel_device), softmax_scale=0.125, dropout_p=0.5, return_dropout_map=True
    )
    assert torch.equal(got, dropout.random_map(state(kernel_device), 2, 3, *seqlens))


def test_varlen_kernels_drop_by_the_same_map(kernel_device: str) -> None:
    torch.manual_seed(0)
    q, k, v, *bounds = varlen_inputs(kernel_device)
    _, _, got, rng_state = _flash_attn_varlen_forward(
        q, k, v, *bounds, *LONGEST.values(), 0.5, 0.125, False, return_softmax=True
    )
    expected = dropout.random_map(rng_state, len(LENGTHS_Q), 4, *LONGEST.values())
    for b, (length_q, length_k) in enumerate(zip(LENGTHS_Q, LENGTHS_K, strict=True)):
        begin = sum(LENGTHS_Q[:b])
        assert torch.equal(got[:, begin : begin + length_q, :length_k], expected[b, :, :length_q, :length_k])


def test_dropout_is_trained_with_the_weights_that_were_used(kernel_device: str) -> None:
    q, k, v = (normal(1, n, 2, 64, seed=n).to(kernel_device).requires_grad_() for n in (40, 51, 52))
    v = v[:, :51].detach().requires_grad_()
    torch.manual_seed(1)
    out, _, random_map = flash_attn_func(q, k, v, dropout_p=0.3, causal=True, return_attn_probs=True)
    grad_out = normal(*out.shape, seed=4).to(kernel_device)
    got = torch.autograd.grad(out, [q, k, v], grad_out)
    a, b, c = (tensor.detach().cpu().double().requires_grad_() for tensor in (q, k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", a, b) / 8
    scores = scores.masked_fill(torch.ones(40, 51, dtype=torch.bool).triu(12), float("-inf"))
    weights = torch.softmax(scores, -1) * (random_map.cpu() <= 178) / 0.7  # floor(255 * 0.7)
    exact = torch.autograd.grad(torch.einsum("bhqk,bkhd->bqhd", weights, c), [a, b, c], grad_out.cpu().double())
    for one, other in zip(got, exact, strict=True):
        assert (one.cpu().double() - other).abs().max() <= 3 * 2.0**-8 * other.abs().max().clamp(min=1.0)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_varlen_training_compiles(kernel_device: str, dynamic: bool) -> None:
    torch._dynamo.reset()

    def layer(q: Any, k: Any, v: Any, *rest: Any) -> Any:
        return flash_attn_varlen_func(q * 2, k, v, *rest, causal=True) + 1

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    results = []
    for function in (compiled, layer):
        q, k, v, *bounds = varlen_inputs(kernel_device, grad=True)
        out = function(q, k, v, *bounds, *LONGEST.values())
        results.append((out, *torch.autograd.grad(out.float().sum(), [q, k, v])))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_decoding_compiles(kernel_device: str, dynamic: bool) -> None:
    torch._dynamo.reset()

    def step(q: Any, k_cache: Any, v_cache: Any, new: Any, lengths: Any) -> Any:
        return flash_attn_with_kvcache(q * 2, k_cache, v_cache, new, new + 1, cache_seqlens=lengths, causal=True) + 1

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for batch in (3, 2):
        lengths = (torch.arange(batch, dtype=torch.int32) * 17).to(kernel_device)
        results = []
        for function in (compiled, step):
            caches = [normal(batch, 64, 2, 64, seed=seed).to(kernel_device) for seed in (1, 2)]
            q, new = normal(batch, 1, 4, 64), normal(batch, 1, 2, 64, seed=3)
            results.append((function(q.to(kernel_device), *caches, new.to(kernel_device), lengths), *caches))
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one, other)


def test_what_no_kernel_has_is_refused(kernel_device: str) -> None:
    strided = normal(2, 20, 2, 128).to(kernel_device)[..., ::2]
    with pytest.raises(KernelUnavailableError, match="k_cache has stride 2 in its last dimension"):
        flash_attn_with_kvcache(normal(2, 1, 2, 64).to(kernel_device), strided, strided)
    pages = normal(4, 24, 2, 64).to(kernel_device)
    table = torch.arange(4, dtype=torch.int32, device=kernel_device).reshape(2, 2)
    with pytest.raises(KernelUnavailableError, match="the page size is 24; the CK kernels have multiples of 16"):
        flash_attn_with_kvcache(normal(2, 1, 2, 64).to(kernel_device), pages, pages, block_table=table)


def test_defaults_that_are_not_handed_over_are_those_of_the_schemas(kernel_device: str) -> None:
    ck.prepare()
    ours = torch.ops.flash_attn_rocm
    found = {
        argument.name: argument.default_value
        for op in (ours.fwd, ours.varlen_fwd, ours.kvcache_fwd)
        for argument in op.default._schema.arguments
        if argument.kwarg_only and argument.has_default_value()
    }
    assert found == ck._DEFAULTS
