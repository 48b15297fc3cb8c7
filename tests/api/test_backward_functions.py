"""The backward functions that other libraries call by themselves, through CK's kernels: buffers, parts, and what falls
back to torch's operations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from flash_attn_rocm.errors import InputError
from tests.api.attention_reference import attention_fp64
from tests.api.test_gradients import launched_by
from tests.kernels.backward_reference import check_gradients
from tests.kernels.feature_reference import Features

CAUSAL = Features(causal=True)


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16)


def packed_views(shape: tuple[int, ...], device: str) -> list[Tensor]:
    """Three tensors that lie interleaved in one, as the gradient of a packed qkv; NaN everywhere."""
    return list(torch.full((*shape[:-2], 3, *shape[-2:]), torch.nan, dtype=torch.bfloat16, device=device).unbind(-3))


def turned_views(shape: tuple[int, ...], device: str) -> list[Tensor]:
    """Three tensors whose last dimension is not contiguous, which no kernel can write."""
    turned = (*shape[:-2], shape[-1], shape[-2])
    return [torch.full(turned, torch.nan, dtype=torch.bfloat16, device=device).transpose(-1, -2) for _ in range(3)]


def ran_kernels(call: Callable[[], object]) -> bool:
    return any(name.startswith("fmha_bwd_") for name in launched_by(call))


@pytest.mark.parametrize("buffers", [packed_views, turned_views])
@pytest.mark.parametrize("hdim", [64, 100], ids=["exact", "not a multiple of 8"])
def test_gradients_are_written_into_the_given_views(
    kernel_device: str, hdim: int, buffers: Callable[[tuple[int, ...], str], list[Tensor]]
) -> None:
    """Without rng_state, as ring attention libraries call it."""
    from flash_attn_rocm.flash_attn_interface import _flash_attn_backward, _flash_attn_forward

    q, k, v, dout = (normal(2, 70, 2, hdim, seed=seed).to(kernel_device) for seed in range(4))
    out, lse, *_ = _flash_attn_forward(q, k, v, 0.0, hdim**-0.5, True, -1, -1, 0.0, None, False)
    given = buffers((2, 70, 2, hdim), kernel_device)
    softmax_d: list[Tensor] = []

    def run() -> None:
        softmax_d.append(
            _flash_attn_backward(
                dout, q, k, v, out, lse, *given, 0.0, hdim**-0.5, True, -1, -1, 0.0, None, deterministic=False
            )
        )

    versions = [tensor._version for tensor in given]
    assert ran_kernels(run)
    assert all(tensor._version > version for tensor, version in zip(given, versions, strict=True))
    for b in range(2):
        inputs = tuple(tensor[b].cpu() for tensor in (q, k, v))
        check_gradients(tuple(tensor[b] for tensor in given), inputs, dout[b].cpu(), CAUSAL, f"batch entry {b}")
    expected = (dout.double() * out.double()).sum(-1).transpose(1, 2)
    torch.testing.assert_close(softmax_d[0].double(), expected, atol=1e-3, rtol=1e-3)


def test_only_some_gradients_may_be_given(kernel_device: str) -> None:
    """The others are computed for nobody."""
    from flash_attn_rocm.flash_attn_interface import _flash_attn_backward, _flash_attn_forward

    q, k, v, dout = (normal(1, 40, 2, 64, seed=seed).to(kernel_device) for seed in range(4))
    out, lse, *_ = _flash_attn_forward(q, k, v, 0.0, 0.125, False, -1, -1, 0.0, None, False)
    results = []
    for chosen in ((True, True, True), (False, True, False)):
        given = [torch.full_like(q, torch.nan) if wanted else None for wanted in chosen]
        _flash_attn_backward(dout, q, k, v, out, lse, *given, 0.0, 0.125, False, -1, -1, 0.0, None, deterministic=True)
        results.append(given)
    assert torch.equal(results[0][1], results[1][1])


def test_varlen_gradients_are_written_into_the_given_views(kernel_device: str) -> None:
    from flash_attn_rocm.flash_attn_interface import _flash_attn_varlen_backward, _flash_attn_varlen_forward

    starts = torch.tensor([0, 20, 20, 70], dtype=torch.int32, device=kernel_device)
    sizes = (starts, starts, 50, 50)
    q, k, v, dout = (normal(72, 2, 128, seed=seed).to(kernel_device) for seed in range(4))
    out, lse, *_ = _flash_attn_varlen_forward(q, k, v, *sizes, 0.0, 0.1, True, zero_tensors=True)
    given = packed_views((72, 2, 128), kernel_device)
    options = (0.0, 0.1, True, -1, -1, 0.0, None)
    assert ran_kernels(
        lambda: _flash_attn_varlen_backward(dout, q, k, v, out, lse, *given, *sizes, *options, deterministic=True)
    )
    for first, last in ((0, 20), (20, 70)):
        rows = slice(first, last)
        inputs = tuple(tensor[rows].cpu() for tensor in (q, k, v))
        features = Features(causal=True, scale=0.1)
        check_gradients(tuple(tensor[rows] for tensor in given), inputs, dout[rows].cpu(), features, f"rows {rows}")
    for tensor in given:
        assert (tensor[70:] == 0).all()


def test_parts_of_the_keys_with_the_out_and_lse_of_all(kernel_device: str) -> None:
    """As ring attention does: dq of the parts adds up, dk and dv belong to their part."""
    from flash_attn_rocm.flash_attn_interface import _flash_attn_backward, _flash_attn_forward

    q, dout = (normal(1, 40, 2, 64, seed=seed).to(kernel_device) for seed in (0, 3))
    k, v = (normal(1, 96, 2, 64, seed=seed).to(kernel_device) for seed in (1, 2))
    out, lse, *_ = _flash_attn_forward(q, k, v, 0.0, 0.125, False, -1, -1, 0.0, None, False)
    sums = torch.zeros(q.shape, dtype=torch.float32, device=kernel_device)
    parts = []
    for keys in (slice(0, 40), slice(40, 96)):
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k[:, keys]), torch.empty_like(v[:, keys])
        part = (k[:, keys], v[:, keys])
        _flash_attn_backward(
            dout, q, *part, out, lse, dq, dk, dv, 0.0, 0.125, False, -1, -1, 0.0, None, deterministic=False
        )
        sums += dq.float()
        parts.append((dk, dv))
    dk, dv = (torch.cat(pair, dim=1) for pair in zip(*parts, strict=True))
    inputs = tuple(tensor[0].cpu() for tensor in (q, k, v))
    check_gradients((sums[0], dk[0], dv[0]), inputs, dout[0].cpu(), Features(), "both parts")


def test_softcap_comes_from_torch_operations(kernel_device: str) -> None:
    """CK has no backward with softcap; its gradient is right all the same."""
    from flash_attn_rocm import flash_attn_func

    tensors = [4 * normal(1, 60, 2, 64, seed=seed) for seed in range(2)] + [normal(1, 60, 2, 64, seed=2)]
    dout = normal(1, 60, 2, 64, seed=3)
    leaves = [tensor.to(kernel_device).requires_grad_() for tensor in tensors]
    grads: list[Tensor] = []

    def run() -> None:
        out = flash_attn_func(*leaves, causal=True, softcap=2.0)
        grads.extend(torch.autograd.grad(out, leaves, dout.to(kernel_device)))

    assert not ran_kernels(run)
    exact = [tensor.double().requires_grad_() for tensor in tensors]
    out, _ = attention_fp64(*exact, causal=True, softcap=2.0)
    for ours, right in zip(grads, torch.autograd.grad(out, exact, dout.double()), strict=True):
        assert (ours.cpu().double() - right).abs().max() <= 2**-7 * max(1.0, float(right.abs().max()))


def test_what_no_kernel_covers_is_known_without_running(installed: Path) -> None:
    """The host library refuses the same: these calls must go elsewhere."""
    from flash_attn_rocm import paths
    from flash_attn_rocm.backends.ck_backward import MAX_ALIBI_LENGTH, covers

    manifest = paths.find_manifests()["gfx1201"]
    call = {"mode": "batch", "dtype": torch.bfloat16, "hdim": 64, "longest": 100, "masked": True, "alibi": True}
    call |= {"dropout": True, "deterministic": False}
    assert covers(manifest, **call)
    for change in (
        {"longest": MAX_ALIBI_LENGTH + 1},
        {"dtype": torch.float32},
        {"hdim": 264},
        {"dtype": torch.float16},  # this profile has ALiBi with dropout in bf16 only
    ):
        assert not covers(manifest, **{**call, **change}), change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda dq, dk, dv: (dq, dk, dk), "dk and dv are one tensor"),
        (lambda dq, dk, dv: (dq[:, :1].expand_as(dq), dk, dv), "dq has stride 0 in dimension 1"),
    ],
    ids=["one tensor twice", "expanded"],
)
def test_gradients_without_memory_of_their_own(change: Any, message: str) -> None:
    from flash_attn_rocm.flash_attn_interface import _flash_attn_backward

    q = torch.zeros(1, 5, 2, 64, dtype=torch.bfloat16)
    given = change(*(torch.empty_like(q) for _ in "qkv"))
    lse = torch.zeros(1, 2, 5)
    with pytest.raises(InputError, match=message):
        _flash_attn_backward(q, q, q, q, q, lse, *given, 0.0, 0.125, False, -1, -1, 0.0, None, deterministic=False)
