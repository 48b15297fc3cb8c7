"""The references for several lengths and KV caches against numbers worked out by hand and against their parts."""

from __future__ import annotations

import math

import pytest
import torch

from flash_attn_rocm.reference import Dropped, Mask, Scoring, attention_in
from flash_attn_rocm.reference_sequences import (
    Cache,
    Rotary,
    append_to,
    kvcache_in,
    rotated,
    rotated_queries,
    varlen_in,
)

FP64 = torch.float64


def one_query(scores: list[float], values: list[float], scoring: Scoring, dropped: Dropped | None = None) -> float:
    """Out for one query of 1 whose keys are these scores."""
    q = torch.ones(1, 1, 1, 1, dtype=FP64)
    k, v = (torch.tensor(numbers, dtype=FP64).reshape(1, -1, 1, 1) for numbers in (scores, values))
    return attention_in(FP64, q, k, v, scoring, dropped)[0].item()


def test_softcap_by_hand() -> None:
    """2 tanh(atanh(1/2)) = 1: scores 0 and 2 atanh(1/2) become 0 and 1."""
    out = one_query([0.0, 2 * math.atanh(0.5)], [0.0, 1.0], Scoring(1.0, softcap=2.0))
    assert out == pytest.approx(math.e / (1 + math.e))


def test_alibi_by_hand() -> None:
    """The query is aligned with the last of three keys: distances 2, 1, 0 times ln 2 make weights 1, 2, 4."""
    slopes = torch.tensor([math.log(2)])
    out = one_query([0.0] * 3, [7.0, 0.0, 0.0], Scoring(1.0, alibi_slopes=slopes))
    assert out == pytest.approx(1.0, abs=1e-6)


def test_dropout_by_hand() -> None:
    """p = 0.5 keeps bytes up to 127: of two equal weights the second goes, the first counts twice."""
    dropped = Dropped(0.5, torch.tensor([127, 128], dtype=torch.uint8).reshape(1, 1, 1, 2))
    assert one_query([0.0, 0.0], [3.0, 50.0], Scoring(1.0), dropped) == pytest.approx(3.0)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).half()


def test_varlen_is_one_call_a_sequence() -> None:
    q, k, v = normal(7, 4, 8), normal(9, 2, 8, seed=1), normal(9, 2, 8, seed=2)
    slopes = torch.rand(2, 4, generator=torch.Generator().manual_seed(3))
    cu_q, cu_k = (torch.tensor(bounds, dtype=torch.int32) for bounds in ([0, 3, 6], [0, 5, 8]))
    scoring = Scoring(0.4, Mask(right=0), 2.0, slopes)
    out, lse = varlen_in(FP64, q, k, v, cu_q, cu_k, scoring)
    for b, (rows, keys) in enumerate(((slice(0, 3), slice(0, 5)), (slice(3, 6), slice(5, 8)))):
        part = Scoring(0.4, Mask(right=0), 2.0, slopes[b])
        expected, expected_lse = attention_in(FP64, q[None, rows], k[None, keys], v[None, keys], part)
        assert torch.equal(out[rows], expected[0])
        assert torch.equal(lse[:, rows], expected_lse[0])
    assert (out[6] == 0).all()
    assert torch.isneginf(lse[:, 6]).all()
    shortened, _ = varlen_in(
        FP64, q, k, v, cu_q, cu_k, Scoring(0.4), seqused_k=torch.tensor([4, 1]), leftpad_k=torch.tensor([2, 0])
    )
    expected, _ = attention_in(FP64, q[None, :3], k[None, 2:4], v[None, 2:4], Scoring(0.4))
    assert torch.equal(shortened[:3], expected[0])


@pytest.mark.parametrize("interleaved", [True, False])
def test_rotation_by_hand(interleaved: bool) -> None:
    """A quarter turn takes (1, 0) to (0, 1); features beyond rotary_dim stay."""
    cos, sin = torch.tensor([[1.0, 1.0], [0.0, 1.0]]), torch.tensor([[0.0, 0.0], [1.0, 0.0]])
    x = torch.tensor([[1.0, 0.0, 3.0, 4.0, 5.0]])
    if not interleaved:
        x = x[:, [0, 2, 1, 3, 4]]
    expected = torch.tensor([[0.0, 1.0, 3.0, 4.0, 5.0]], dtype=FP64)
    if not interleaved:
        expected = expected[:, [0, 2, 1, 3, 4]]
    assert torch.equal(rotated(x, cos, sin, 1, interleaved), expected)
    assert torch.equal(rotated(x, cos, sin, 0, interleaved), x.double())


def test_queries_stand_at_one_position_unless_they_advance() -> None:
    angles = torch.rand(8, 4, generator=torch.Generator().manual_seed(0))
    rotary = Rotary(angles.cos(), angles.sin(), True)
    q = normal(2, 3, 2, 16).float()
    still, moving = (rotated_queries(q, [1, 4], rotary, advancing) for advancing in (False, True))
    assert torch.equal(still[:, 0], moving[:, 0])
    assert torch.equal(still[1, 2], rotated(q[1, 2], rotary.cos, rotary.sin, 4, True).float())
    assert torch.equal(moving[1, 2], rotated(q[1, 2], rotary.cos, rotary.sin, 6, True).float())


@pytest.mark.parametrize("kind", ["rows", "index", "pages"])
def test_a_cache_is_what_its_slots_hold(kind: str) -> None:
    dense = [normal(2, 12, 2, 8, seed=seed) for seed in (1, 2)]
    q, new = normal(2, 2, 4, 8), normal(2, 3, 2, 8, seed=3)
    lengths, index, table = [4, 7], None, None
    stored = [tensor.clone() for tensor in dense]
    if kind == "index":
        index = torch.tensor([1, 0])
        stored = [tensor.flip(0) for tensor in stored]
    elif kind == "pages":
        table = torch.tensor([[5, 0, 3], [1, 4, 2]])
        for which, tensor in enumerate(dense):
            pages = torch.empty(6, 4, 2, 8, dtype=torch.float16)
            pages[table.flatten()] = tensor.reshape(6, 4, 2, 8)
            stored[which] = pages
    after = append_to(Cache(*stored, lengths, index, torch.tensor([1, 0]), table), new, new, None)
    out, lse = kvcache_in(FP64, q, after, Scoring(0.3, Mask(right=0)))
    for b, (first, length) in enumerate(((1, 4), (0, 7))):
        keys, values = (torch.cat([tensor[b, first:length], new[b]])[None] for tensor in dense)
        expected, expected_lse = attention_in(FP64, q[b : b + 1], keys, values, Scoring(0.3, Mask(right=0)))
        assert torch.equal(out[b], expected[0])
        assert torch.equal(lse[b], expected_lse[0])
    assert after.lengths == [7, 10]
