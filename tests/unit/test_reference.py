"""The package's float64 reference against numbers worked out by hand, and its verdicts."""

from __future__ import annotations

import math

import pytest
import torch

from flash_attn_rocm.reference import LSE_ALLOWED, Dropped, Mask, Scoring, attention_in, compare, gradients_in


@pytest.mark.parametrize(
    ("seqlen_q", "seqlen_k", "mask", "rows"),
    [
        (2, 5, Mask(right=0), ["11110", "11111"]),
        (4, 2, Mask(right=0), ["00", "00", "10", "11"]),
        (3, 3, Mask(left=1, right=0), ["100", "110", "011"]),
        (3, 3, Mask(left=0), ["111", "011", "001"]),
        (2, 4, Mask(left=1, right=1), ["0111", "0011"]),
        (2, 3, Mask(), ["111", "111"]),
        (3, 1, Mask(left=0, right=0), ["0", "0", "1"]),
    ],
)
def test_masks(seqlen_q: int, seqlen_k: int, mask: Mask, rows: list[str]) -> None:
    keep = mask.keep(seqlen_q, seqlen_k)
    assert ["".join(str(int(x)) for x in row) for row in keep] == rows


def test_attention_by_hand() -> None:
    """One query, keys with scores 0 and ln 3: weights 1/4 and 3/4, lse ln 4."""
    q = torch.tensor([1.0]).reshape(1, 1, 1, 1)
    k = torch.tensor([0.0, math.log(3.0)]).reshape(1, 2, 1, 1)
    v = torch.tensor([4.0, 8.0]).reshape(1, 2, 1, 1)
    out, lse = attention_in(torch.float64, q, k, v, Scoring(1.0))
    assert out.item() == pytest.approx(7.0, abs=1e-6)
    assert lse.item() == pytest.approx(math.log(4.0), abs=1e-6)


@pytest.mark.parametrize("seqlen_k", [0, 2])
def test_queries_without_keys_give_zero_and_minus_infinity(seqlen_k: int) -> None:
    q, k = torch.ones(1, 3, 2, 8), torch.ones(1, seqlen_k, 2, 8)
    out, lse = attention_in(torch.float64, q, k, k, Scoring(1.0, Mask(right=0)))
    assert (out[:, : 3 - seqlen_k] == 0).all()
    assert torch.isneginf(lse[:, :, : 3 - seqlen_k]).all()


def test_gradients_by_hand() -> None:
    """Weights P of 1/4 and 3/4, output 7: dV is P, and the scores' gradients are P * (v - 7)."""
    q = torch.tensor([1.0]).reshape(1, 1, 1, 1)
    k = torch.tensor([0.0, math.log(3.0)]).reshape(1, 2, 1, 1)
    v = torch.tensor([4.0, 8.0]).reshape(1, 2, 1, 1)
    dq, dk, dv = gradients_in(torch.float64, (q, k, v), torch.ones(1, 1, 1, 1), Scoring(1.0))
    assert dq.item() == pytest.approx(0.75 * math.log(3.0), abs=1e-6)
    assert dk.flatten().tolist() == pytest.approx([-0.75, 0.75], abs=1e-6)
    assert dv.flatten().tolist() == pytest.approx([0.25, 0.75], abs=1e-6)


@pytest.mark.parametrize("seqlen_k", [0, 2])
def test_queries_without_keys_have_no_gradient(seqlen_k: int) -> None:
    q, k = torch.ones(1, 3, 2, 8), torch.ones(1, seqlen_k, 2, 8)
    dq, dk, dv = gradients_in(torch.float64, (q, k, k), q, Scoring(1.0, Mask(right=0)))
    assert (dq[:, : 3 - seqlen_k] == 0).all()
    assert dk.shape == dv.shape == k.shape
    assert all(grad.isfinite().all() for grad in (dq, dk, dv))


@pytest.mark.parametrize("seqlens", [(4, 3), (2, 5)], ids=["rows without keys", "more keys"])
def test_gradients_are_those_of_finite_differences(seqlens: tuple[int, int]) -> None:
    """torch's gradcheck, with every feature at once."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(1, seqlens[0], 2, 3), (1, seqlens[1], 1, 3), (1, seqlens[1], 1, 3)]
    tensors = [torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_() for shape in shapes]
    scoring = Scoring(0.7, Mask(left=2, right=0), 1.5, torch.tensor([0.1, 0.3]))
    dropped = Dropped(0.4, torch.randint(0, 256, (1, 2, *seqlens), generator=generator))
    torch.autograd.gradcheck(lambda q, k, v: attention_in(torch.float64, q, k, v, scoring, dropped)[0], tensors)


def _inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(1, 20, 2, 16, generator=generator).bfloat16() for _ in range(3))  # type: ignore[return-value]


@pytest.mark.parametrize("spoil", ["nothing", "value", "nan", "row order", "lse", "lse sign"])
def test_compare_finds_every_kind_of_error(spoil: str) -> None:
    q, k, v = _inputs()
    exact, lse = attention_in(torch.float64, q, k, v, Scoring(0.25, Mask(right=0)))
    out, lse = exact.to(torch.bfloat16), lse.float()
    if spoil == "value":
        out[0, 3, 1, 5] += 0.5
    elif spoil == "nan":
        out[0, 0, 0, 0] = math.nan
    elif spoil == "row order":
        out = out.flip(1)
    elif spoil == "lse":
        lse[0, 0, 0] += 10 * LSE_ALLOWED
    elif spoil == "lse sign":
        lse[0, 0, 0] = math.inf
    assert compare(out, lse, q, k, v, Scoring(0.25, Mask(right=0))).passed == (spoil == "nothing")
