"""Reports about autocast, torch.compile, repeatability, rounding."""

from __future__ import annotations

import pytest
import torch

from flash_attn_rocm import flash_attn_func, flash_attn_qkvpacked_func, flash_attn_varlen_func
from flash_attn_rocm.errors import InputError
from tests.api.features import cumulative
from tests.api.user_reports.calls import attend, normal


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
