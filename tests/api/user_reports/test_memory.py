"""Reports about views, and tensors with strides beyond 32 bits."""

from __future__ import annotations

import pytest
import torch

from flash_attn_rocm import flash_attn_func, flash_attn_qkvpacked_func, flash_attn_varlen_func
from tests.api.attention_reference import attention_fp64
from tests.api.user_reports.calls import attend, close, normal

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
