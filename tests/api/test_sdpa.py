"""The SDPA backend against float64: every semantic of flash_attn_func, forward and backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flash_attn_rocm import flash_attn_func
from tests.api.attention_reference import attention_fp64, attention_same_dtype


@pytest.fixture(autouse=True)
def _on_sdpa(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASH_ATTN_ROCM_BACKEND", "sdpa")


def inputs(
    dtype: torch.dtype, batch: int, seqlen_q: int, seqlen_k: int, heads: int, heads_k: int, headdim: int
) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    shapes = [(batch, seqlen_q, heads, headdim), *[(batch, seqlen_k, heads_k, headdim)] * 2]
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def reference_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    names = {"window_size": "window", "softmax_scale": "scale", "alibi_slopes": "slopes"}
    return {names.get(key, key): value for key, value in arguments.items()}


def check(tensors: list[torch.Tensor], **arguments: Any) -> None:
    """Output with and without LSE, and LSE, against float64."""
    exact, exact_lse = attention_fp64(*tensors, **reference_arguments(arguments))
    plain = {key: value for key, value in reference_arguments(arguments).items() if key not in ("softcap", "slopes")}
    baseline, _ = attention_fp64(*tensors, **plain)
    same_dtype = attention_same_dtype(*tensors, **plain)
    allowed = 2 * (same_dtype.double() - baseline).abs().max().item() + 1e-5 if exact.numel() else 0.0
    out = flash_attn_func(*tensors, **arguments)
    with_lse, lse, pattern = flash_attn_func(*tensors, **arguments, return_attn_probs=True)
    assert pattern.numel() == 0
    assert lse.dtype is torch.float32
    assert lse.shape == exact_lse.shape
    for result in (out, with_lse):
        assert result.dtype is tensors[0].dtype
        assert result.shape == tensors[0].shape
        assert result.is_contiguous()
        if exact.numel():
            assert (result.double() - exact).abs().max() <= allowed
            hidden = torch.isneginf(exact_lse)
            assert (result.transpose(1, 2)[hidden] == 0).all()
    torch.testing.assert_close(lse.double(), exact_lse, atol=1e-4, rtol=1e-5)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[torch.Tensor], dict[str, Any]]:
    heads_k, ratio = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    lengths = st.integers(0, 40)
    bound = st.one_of(st.just(-1), st.integers(0, 45))
    tensors = inputs(
        draw(st.sampled_from([torch.float16, torch.bfloat16])),
        draw(st.integers(0, 2)),
        draw(lengths),
        draw(lengths),
        heads_k * ratio,
        heads_k,
        draw(st.sampled_from([1, 8, 40, 64, 111, 256])),
    )
    return tensors, {"causal": draw(st.booleans()), "window_size": (draw(bound), draw(bound))}


@settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(case=cases())
def test_masks_and_shapes(case: tuple[list[torch.Tensor], dict[str, Any]]) -> None:
    tensors, arguments = case
    check(tensors, **arguments)


@pytest.mark.parametrize("causal", [False, True])
def test_softcap_changes_the_scores(causal: bool) -> None:
    """Upstream's CK backend ignores softcap; here it must act (flash-attention issue 1234's recipe: large scores)."""
    q, k, v = inputs(torch.bfloat16, 1, 33, 40, 2, 2, 64)
    q, k = q * 4, k * 4
    check([q, k, v], softcap=5.0, causal=causal)
    assert not torch.allclose(flash_attn_func(q, k, v, softcap=5.0), flash_attn_func(q, k, v), atol=0.1)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(4,), (2, 4)])
def test_alibi(shape: tuple[int, ...], causal: bool) -> None:
    slopes = torch.rand(shape, generator=torch.Generator().manual_seed(4))
    check(inputs(torch.bfloat16, 2, 30, 45, 4, 2, 64), alibi_slopes=slopes, causal=causal)
    check(inputs(torch.bfloat16, 2, 45, 30, 4, 2, 64), alibi_slopes=slopes, causal=causal)


def test_causal_with_more_queries_than_keys() -> None:
    """Rows 0 and 1 of 4 see nothing, row 2 sees key 0, row 3 both keys (flash-attention issue 1778)."""
    q, k, v = inputs(torch.bfloat16, 1, 4, 2, 2, 2, 64)
    out, lse, _ = flash_attn_func(q, k, v, causal=True, return_attn_probs=True)
    assert (out[:, :2] == 0).all()
    assert torch.isneginf(lse[:, :, :2]).all()
    assert torch.equal(out[:, 2], v[:, 0])


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"causal": True},
        {"window_size": (7, 3)},
        {"softcap": 3.0, "causal": True},
        {"alibi_slopes": torch.tensor([0.1, 0.2, 0.3, 0.4])},
        {"softmax_scale": 0.2},
    ],
    ids=["full", "causal", "window", "softcap", "alibi", "scale"],
)
@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(30, 30), (40, 25), (25, 40), (5, 0)])
def test_gradients(arguments: dict[str, Any], seqlen_q: int, seqlen_k: int) -> None:
    tensors = inputs(torch.float16, 1, seqlen_q, seqlen_k, 4, 2, 40)
    grad_out = torch.randn(tensors[0].shape, generator=torch.Generator().manual_seed(5))
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    got = torch.autograd.grad(flash_attn_func(*leaves, **arguments), leaves, grad_out.half())
    if seqlen_k == 0:
        assert all((one == 0).all() for one in got)
        return
    doubles = [tensor.double().requires_grad_() for tensor in tensors]
    exact_out, _ = attention_fp64(*doubles, **reference_arguments(arguments))
    exact = torch.autograd.grad(exact_out, doubles, grad_out.double())
    for one, other in zip(got, exact, strict=True):
        assert torch.isfinite(one).all()
        assert (one.double() - other).abs().max() <= 3 * 2.0**-11 * other.abs().max().clamp(min=1.0)


def test_dropout_drops_the_given_share_and_rescales() -> None:
    """A weight is kept iff its random byte is at most floor(255 * (1 - p)): 192 of 256 values for p = 0.25."""
    q, k, v = inputs(torch.float16, 2, 64, 64, 4, 4, 32)
    torch.manual_seed(0)
    out, _, random_map = flash_attn_func(q, k, v, dropout_p=0.25, return_attn_probs=True)
    assert random_map.shape == (2, 4, 64, 64)
    assert random_map.dtype == torch.uint8
    kept = random_map <= 191
    # 32768 draws: the share lies within 5 standard deviations (0.012).
    assert abs(kept.double().mean().item() - 0.75) < 0.012
    scores = torch.einsum("bqhd,bkhd->bhqk", q.double(), k.double()) * 32**-0.5
    expected = torch.einsum("bhqk,bkhd->bqhd", torch.softmax(scores, -1) * kept / 0.75, v.double())
    assert (out.double() - expected).abs().max() < 5e-3


def test_dropout_is_reproducible_and_differs_between_calls() -> None:
    q, k, v = inputs(torch.float16, 1, 32, 32, 2, 2, 32)
    torch.manual_seed(7)
    first, second = (flash_attn_func(q, k, v, dropout_p=0.5) for _ in range(2))
    torch.manual_seed(7)
    again = flash_attn_func(q, k, v, dropout_p=0.5)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("layout", ["packed", "transposed", "strided", "expanded"])
def test_views_give_what_contiguous_tensors_give(layout: str) -> None:
    q, k, v = inputs(torch.bfloat16, 2, 20, 20, 4, 4, 64)
    views = {
        "packed": lambda: torch.stack([q, k, v], dim=2).unbind(2),
        "transposed": lambda: [t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v)],
        "strided": lambda: [torch.stack([t, t], dim=-1)[..., 0] for t in (q, k, v)],
        "expanded": lambda: (q[:, :, :1].expand(-1, -1, 4, -1), k[:1].expand(2, -1, -1, -1), v),
    }[layout]()
    expected = flash_attn_func(*(view.contiguous() for view in views), causal=True)
    # torch may choose another algorithm for another layout: equal up to a few roundings of values below 4.
    torch.testing.assert_close(flash_attn_func(*views, causal=True), expected, atol=4 * 2.0**-8, rtol=0)
