"""The CK kernels through the installed op, against an fp64 reference with an explicit mask.

Bound of every comparison: twice the error that torch makes for the same inputs in the same dtype, plus 1e-5.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.api.attention_reference import attention_fp64, attention_same_dtype

# Device memory and launches are slow to emulate: sizes stay small, and cover a few tiles of 64 queries and 64 keys.
SEQLENS = st.one_of(st.integers(0, 4), st.integers(5, 200), st.sampled_from([63, 64, 65, 127, 128, 129, 192]))


@dataclass(frozen=True)
class Case:
    """One call of flash_attn_func."""

    dtype: torch.dtype
    headdim: int
    seqlen_q: int
    seqlen_k: int
    nheads: int = 2
    nheads_k: int = 2
    batch: int = 1
    causal: bool = False
    window: tuple[int, int] = (-1, -1)
    layout: str = "contiguous"
    seed: int = 0

    def tensors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """q, k, v of this case, in the memory layout it asks for."""
        generator = torch.Generator().manual_seed(self.seed)

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=generator).to(self.dtype)

        q_shape = (self.batch, self.seqlen_q, self.nheads, self.headdim)
        kv_shape = (self.batch, self.seqlen_k, self.nheads_k, self.headdim)
        if self.layout == "heads first":  # (batch, nheads, seqlen, headdim) in memory, as other libraries keep it
            return tuple(
                normal(shape[0], shape[2], shape[1], shape[3]).transpose(1, 2)
                for shape in (q_shape, kv_shape, kv_shape)
            )
        if self.layout == "packed kv":
            kv = normal(self.batch, self.seqlen_k, 2, self.nheads_k, self.headdim)
            return (normal(*q_shape), *kv.unbind(2))
        if self.layout == "odd rows":  # rows start on 2-byte boundaries: no vector load is aligned
            return tuple(normal(*shape[:3], shape[3] + 1)[..., 1:] for shape in (q_shape, kv_shape, kv_shape))
        if self.layout == "last dim strided":
            return tuple(normal(*shape[:3], 2 * shape[3])[..., ::2] for shape in (q_shape, kv_shape, kv_shape))
        return normal(*q_shape), normal(*kv_shape), normal(*kv_shape)


LAYOUTS = ("contiguous", "heads first", "packed kv", "odd rows", "last dim strided")


def check(case: Case, device: str) -> None:
    """Run one case on the device and compare output and LSE with the reference."""
    from flash_attn_rocm import flash_attn_func

    q, k, v = case.tensors()
    arguments = {"causal": case.causal, "window": case.window}
    expected, expected_lse = attention_fp64(q, k, v, **arguments)
    same_dtype = attention_same_dtype(q, k, v, **arguments)
    allowed = 2 * (same_dtype.double() - expected).abs().max().item() + 1e-5 if expected.numel() else 0.0

    out, lse, pattern = flash_attn_func(
        q.to(device), k.to(device), v.to(device), causal=case.causal, window_size=case.window, return_attn_probs=True
    )
    assert out.dtype == case.dtype
    assert out.shape == q.shape
    assert lse.dtype == torch.float32
    assert lse.shape == (case.batch, case.nheads, case.seqlen_q)
    assert pattern.numel() == 0
    if not expected.numel():
        return
    error = (out.cpu().double() - expected).abs().max().item()
    assert error <= allowed, f"{case}: error {error:.3g}, allowed {allowed:.3g}"
    hidden = torch.isneginf(expected_lse)
    assert torch.equal(torch.isneginf(lse.cpu()), hidden)
    assert (out.cpu().transpose(1, 2)[hidden] == 0).all()
    seen = ~hidden
    torch.testing.assert_close(lse.cpu().double()[seen], expected_lse[seen], atol=1e-4, rtol=1e-5)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    ratio = draw(st.sampled_from([1, 2, 3, 4]))
    nheads_k = draw(st.integers(1, 2))
    bound = st.one_of(st.just(-1), st.integers(0, 80))
    return Case(
        dtype=draw(st.sampled_from([torch.float16, torch.bfloat16])),
        headdim=draw(st.one_of(st.sampled_from([64, 128]), st.integers(1, 128))),
        seqlen_q=draw(SEQLENS),
        seqlen_k=draw(SEQLENS),
        nheads=ratio * nheads_k,
        nheads_k=nheads_k,
        batch=draw(st.integers(1, 2)),
        causal=draw(st.booleans()),
        window=(draw(bound), draw(bound)),
        layout=draw(st.sampled_from(LAYOUTS)),
        seed=draw(st.integers(0, 2**16)),
    )


def _drawn(kernel_device: str, case: Case) -> None:
    check(case, kernel_device)


# The fixture only sets environment variables, so sharing it between examples is right.
_SETTINGS = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)

test_drawn_cases = settings(_SETTINGS, max_examples=150)(given(case=cases())(_drawn))
test_drawn_cases_wide = pytest.mark.wide(settings(_SETTINGS, max_examples=3000)(given(case=cases())(_drawn)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
@pytest.mark.parametrize("headdim", [64, 128, 8, 40, 72, 96, 111])
@pytest.mark.parametrize(
    ("seqlen_q", "seqlen_k"), [(1, 1), (1, 300), (64, 64), (128, 192), (113, 203), (203, 113), (129, 1)]
)
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_grid(kernel_device: str, dtype: torch.dtype, headdim: int, seqlen_q: int, seqlen_k: int, causal: bool) -> None:
    check(Case(dtype, headdim, seqlen_q, seqlen_k, nheads=4, nheads_k=2, causal=causal), kernel_device)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("headdim", [64, 100])
def test_layouts(kernel_device: str, layout: str, headdim: int) -> None:
    check(Case(torch.bfloat16, headdim, 100, 130, batch=2, nheads=4, nheads_k=1, layout=layout), kernel_device)


@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(0, 5), (5, 0), (0, 0)])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_empty_sequences(kernel_device: str, seqlen_q: int, seqlen_k: int, causal: bool) -> None:
    check(Case(torch.float16, 64, seqlen_q, seqlen_k, causal=causal), kernel_device)


@pytest.mark.parametrize("window", [(0, 0), (15, 0), (16, 16), (63, 64), (-1, 3), (3, -1), (1000, 1000), (200, 0)])
@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(200, 200), (70, 200), (200, 70)])
def test_windows(kernel_device: str, window: tuple[int, int], seqlen_q: int, seqlen_k: int) -> None:
    check(Case(torch.bfloat16, 64, seqlen_q, seqlen_k, window=window), kernel_device)


def test_causal_with_more_queries_than_keys(kernel_device: str) -> None:
    """Bottom-right: of 4 queries on 2 keys, rows 0 and 1 see nothing, row 2 the first key (flash-attention 1778)."""
    from flash_attn_rocm import flash_attn_func

    q, k, v = Case(torch.bfloat16, 64, 4, 2).tensors()
    out, lse, _ = flash_attn_func(
        q.to(kernel_device), k.to(kernel_device), v.to(kernel_device), causal=True, return_attn_probs=True
    )
    assert (out[:, :2] == 0).all()
    assert torch.isneginf(lse[:, :, :2]).all()
    assert torch.equal(out[:, 2].cpu(), v[:, 0])


def test_causal_window_of_one_returns_v(kernel_device: str) -> None:
    """Each query sees only its own key, so the softmax is 1 and the output is v, bit for bit."""
    from flash_attn_rocm import flash_attn_func

    q, k, v = Case(torch.float16, 128, 130, 130).tensors()
    out = flash_attn_func(
        q.to(kernel_device), k.to(kernel_device), v.to(kernel_device), causal=True, window_size=(0, 0)
    )
    assert torch.equal(out.cpu(), v)


def test_two_runs_are_bit_equal(kernel_device: str) -> None:
    from flash_attn_rocm import flash_attn_func

    q, k, v = (tensor.to(kernel_device) for tensor in Case(torch.bfloat16, 80, 150, 170, causal=True).tensors())
    assert torch.equal(flash_attn_func(q, k, v, causal=True), flash_attn_func(q, k, v, causal=True))
