"""ALiBi, softcap and dropout in the forward kernels of equal and of different lengths, against float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.kernels.feature_reference import Features, check_result

SCALE = 0.125


def normal(*shape: int, dtype: torch.dtype = torch.bfloat16, seed: int = 0) -> Tensor:
    """Random numbers that are the same in every run."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(dtype)


def starts(lengths: list[int]) -> Tensor:
    """cu_seqlens of these lengths."""
    return torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32)


def op_arguments(features: Features) -> dict[str, Any]:
    """The op's keyword arguments for these features."""
    return {
        "softmax_scale": SCALE if features.scale is None else features.scale,
        "window_left": features.window[0],
        "window_right": 0 if features.causal else features.window[1],
        "softcap": features.softcap,
        "dropout_p": features.dropout_p,
    }


def load_ops() -> Any:
    """The ops, as the package loads them."""
    from flash_attn_rocm.backends import ck

    ck.prepare()
    return torch.ops.flash_attn_rocm


def run_batch(
    device: str, q: Tensor, k: Tensor, v: Tensor, features: Features, slopes: Tensor | None = None, seed: int = 7
) -> Tensor:
    """Run the op fwd, compare every batch entry, and return the dropout map."""
    state = torch.tensor([seed, 11], dtype=torch.int64, device=device) if features.dropout_p else None
    out, lse, random = load_ops().fwd(
        q.to(device),
        k.to(device),
        v.to(device),
        None if slopes is None else slopes.to(device),
        state,
        **op_arguments(features),
        return_dropout_map=features.dropout_p > 0,
    )
    for b in range(q.shape[0]):
        kept = random[b].cpu() <= math.floor(255 * (1 - features.dropout_p)) if features.dropout_p else None
        own = slopes if slopes is None or slopes.dim() == 1 else slopes[b]
        this = Features(
            features.causal, features.window, features.softcap, own, kept, features.dropout_p, features.scale or SCALE
        )
        check_result(out[b], lse[b], q[b], k[b], v[b], this, f"batch entry {b}")
    return random


def run_varlen(
    device: str,
    lengths: list[tuple[int, int]],
    features: Features,
    *,
    heads: tuple[int, int] = (2, 1),
    hdim: int = 64,
    dtype: torch.dtype = torch.bfloat16,
    slopes: Tensor | None = None,
    used: list[int] | None = None,
) -> Tensor:
    """Run the op varlen_fwd, compare every sequence, and return the dropout map."""
    lengths_q, lengths_k = [q for q, _ in lengths], [k for _, k in lengths]
    q = normal(sum(lengths_q), heads[0], hdim, dtype=dtype)
    k, v = (normal(sum(lengths_k), heads[1], hdim, dtype=dtype, seed=s) for s in (1, 2))
    starts_q, starts_k = starts(lengths_q), starts(lengths_k)
    state = torch.tensor([3, 5], dtype=torch.int64, device=device) if features.dropout_p else None
    out, lse, random = load_ops().varlen_fwd(
        q.to(device),
        k.to(device),
        v.to(device),
        starts_q.to(device),
        starts_k.to(device),
        None if used is None else torch.tensor(used, dtype=torch.int32, device=device),
        None,
        None if slopes is None else slopes.to(device),
        state,
        **op_arguments(features),
        max_seqlen_q=max(lengths_q, default=0),
        max_seqlen_k=max(lengths_k, default=0),
        return_dropout_map=features.dropout_p > 0,
    )
    assert lse.shape == (heads[0], sum(lengths_q))
    for b, (length_q, length_k) in enumerate(lengths):
        first_q, first_k = int(starts_q[b]), int(starts_k[b])
        seen = length_k if used is None else used[b]
        rows, keys = slice(first_q, first_q + length_q), slice(first_k, first_k + seen)
        kept = None
        if features.dropout_p:
            kept = random[:, rows, :seen].cpu() <= math.floor(255 * (1 - features.dropout_p))
        own = slopes if slopes is None or slopes.dim() == 1 else slopes[b]
        this = Features(
            features.causal, features.window, features.softcap, own, kept, features.dropout_p, features.scale or SCALE
        )
        check_result(out[rows], lse[:, rows], q[rows], k[keys], v[keys], this, f"sequence {b}")
    return random


LENGTHS = [(5, 5), (0, 7), (64, 130), (70, 0), (129, 65), (1, 200), (0, 0)]
MASKS = [Features(), Features(causal=True), Features(window=(20, 7)), Features(window=(-1, 3))]
MASK_IDS = ["full", "causal", "window", "right"]


@pytest.mark.parametrize("mask", MASKS, ids=MASK_IDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
@pytest.mark.parametrize("hdim", [64, 128, 40])
def test_varlen(kernel_device: str, hdim: int, dtype: torch.dtype, mask: Features) -> None:
    """Empty sequences of queries, of keys and of both among others; the last one empty."""
    run_varlen(kernel_device, LENGTHS, mask, hdim=hdim, dtype=dtype, heads=(4, 2))


@pytest.mark.parametrize("mask", MASKS, ids=MASK_IDS)
def test_varlen_with_used_keys(kernel_device: str, mask: Features) -> None:
    """seqused_k hides the end of each sequence, and the mask is aligned with what is left."""
    run_varlen(kernel_device, [(5, 9), (64, 130), (100, 70), (3, 4)], mask, used=[9, 77, 1, 0])


def test_varlen_of_nothing(kernel_device: str) -> None:
    run_varlen(kernel_device, [(0, 0)], Features())
    run_varlen(kernel_device, [(7, 0)], Features())
    run_varlen(kernel_device, [(0, 7)], Features())


@pytest.mark.parametrize("mask", MASKS, ids=MASK_IDS)
@pytest.mark.parametrize("shape", [(100, 130), (130, 100), (1, 77)])
@pytest.mark.parametrize("per_batch", [False, True], ids=["heads", "batch-heads"])
def test_alibi(kernel_device: str, mask: Features, shape: tuple[int, int], per_batch: bool) -> None:
    """The lse too: CK's causal form of the bias differs by a constant per row, which we do not use."""
    slopes = torch.rand((2, 4) if per_batch else (4,), generator=torch.Generator().manual_seed(1)) / 4
    q = normal(2, shape[0], 4, 64)
    k, v = normal(2, shape[1], 2, 64, seed=1), normal(2, shape[1], 2, 64, seed=2)
    run_batch(kernel_device, q, k, v, mask, slopes)


@pytest.mark.parametrize("mask", MASKS, ids=MASK_IDS)
def test_alibi_varlen(kernel_device: str, mask: Features) -> None:
    run_varlen(kernel_device, LENGTHS, mask, slopes=torch.tensor([[0.1, 0.3]] * 7) * torch.arange(1, 8)[:, None])


@pytest.mark.parametrize("mask", MASKS, ids=MASK_IDS)
@pytest.mark.parametrize("softcap", [0.5, 5.0, 50.0])
def test_softcap(kernel_device: str, mask: Features, softcap: float) -> None:
    """Large scores, so that the cap acts (B4 of the user reports: q = k = 4 * randn, softcap 5)."""
    features = Features(mask.causal, mask.window, softcap)
    q, k = normal(1, 100, 2, 64) * 4, normal(1, 130, 2, 64, seed=1) * 4
    run_batch(kernel_device, q, k, normal(1, 130, 2, 64, seed=2), features)
    run_varlen(kernel_device, LENGTHS, features)


@pytest.mark.parametrize("mask", MASKS, ids=MASK_IDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
@pytest.mark.parametrize("p", [0.17, 0.5])
def test_dropout(kernel_device: str, mask: Features, dtype: torch.dtype, p: float) -> None:
    """With the returned random values as an explicit mask, the result is that of the reference."""
    features = Features(mask.causal, mask.window, dropout_p=p)
    q, k, v = (normal(2, s, h, 64, dtype=dtype, seed=i) for i, (s, h) in enumerate([(100, 4), (130, 2), (130, 2)]))
    random = run_batch(kernel_device, q, k, v, features)
    assert random.dtype == torch.uint8
    assert random.shape == (2, 4, 100, 130)
    run_varlen(kernel_device, LENGTHS, features, dtype=dtype)


def test_dropout_is_uniform_and_follows_the_seed(kernel_device: str) -> None:
    features = Features(dropout_p=0.25)
    q, k, v = (normal(2, 128, 4, 64, seed=i) for i in range(3))
    first, again, other = (run_batch(kernel_device, q, k, v, features, seed=s).cpu() for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    # 131,072 bytes: their mean has a standard deviation of 73.9 / 362, the share kept one of 0.0012.
    assert abs(first.double().mean().item() - 127.5) < 5 * 73.9 / 362
    assert abs((first <= 191).double().mean().item() - 192 / 256) < 5 * 0.0012
    histogram = torch.bincount(first.flatten().long(), minlength=256)
    assert histogram.min() > 512 - 5 * math.sqrt(512)
    assert histogram.max() < 512 + 5 * math.sqrt(512)
    # Heads and batch entries have numbers of their own.
    blocks = first.reshape(8, -1)
    assert len({tuple(block[:64].tolist()) for block in blocks}) == 8


def test_dropout_map_is_empty_unless_asked_for(kernel_device: str) -> None:
    q = normal(1, 20, 2, 64).to(kernel_device)
    state = torch.tensor([1, 2], device=kernel_device)
    for arguments in ({"dropout_p": 0.5}, {"return_dropout_map": True}):
        _, _, random = load_ops().fwd(q, q, q, None, state, softmax_scale=SCALE, **arguments)
        assert random.shape == (0,)
        assert random.dtype == torch.uint8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cu_seqlens_q": starts([5, 4]).long()}, "cu_seqlens_q has dtype Long; expected Int"),
        ({"cu_seqlens_k": starts([5])}, r"cu_seqlens_k has shape \(2\); expected \(3\)"),
        ({"cu_seqlens_q": starts([5, 40])}, "cu_seqlens_q has entries 5 and 45 at 1"),
        ({"cu_seqlens_q": torch.tensor([0, 5, 3], dtype=torch.int32)}, "cu_seqlens_q has entries 5 and 3 at 1"),
        ({"max_seqlen_k": 3}, "cu_seqlens_k has entries 0 and 4 at 0.*lengths up to 3"),
        ({"seqused_k": torch.tensor([4, 6], dtype=torch.int32)}, "seqused_k has 6 at 1; expected 0 to 5, the"),
        ({"alibi_slopes": torch.ones(3)}, r"alibi_slopes has shape \(3\); expected \(2\) or \(2, 2\)"),
        ({"alibi_slopes": torch.ones(2).double()}, "alibi_slopes has dtype Double; expected Float"),
        (
            {"cu_seqlens_q": starts([]), "cu_seqlens_k": starts([]), "max_seqlen_q": -1},
            "lengths are -1 and 5; allowed: 0",
        ),
        (
            {"cu_seqlens_q": starts([]), "cu_seqlens_k": starts([]), "max_seqlen_k": -9},
            "lengths are 5 and -9; allowed: 0",
        ),
        ({"num_splits": -3}, "num_splits is -3; allowed: 0"),
        ({"num_splits": 129}, "num_splits is 129; allowed: 0"),
        ({"dropout_p": 0.5}, "rng_state is missing"),
        ({"dropout_p": 0.5, "rng_state": torch.ones(3).long()}, r"rng_state has shape \(3\)"),
    ],
)
def test_bad_varlen_arguments(kernel_device: str, change: dict[str, Any], message: str) -> None:
    q, k = normal(9, 2, 64), normal(9, 2, 64, seed=1)
    arguments: dict[str, Any] = {
        "cu_seqlens_q": starts([5, 4]),
        "cu_seqlens_k": starts([4, 5]),
        "max_seqlen_q": 5,
        "max_seqlen_k": 5,
        "softmax_scale": SCALE,
        **change,
    }
    if kernel_device != "cpu":
        pytest.skip("tables in GPU memory are the caller's promise")
    with pytest.raises(RuntimeError, match=message):
        load_ops().varlen_fwd(q, k, k, **arguments)


@pytest.mark.parametrize("hdim", [64, 100])
def test_the_returned_map_is_that_of_the_scheme(kernel_device: str, hdim: int) -> None:
    """The kernels of every tile size draw the numbers that the package computes from seed and offset."""
    from flash_attn_rocm.dropout import random_map

    q, k, v = (normal(2, s, 3, hdim, seed=i) for i, s in enumerate((70, 100, 100)))
    random = run_batch(kernel_device, q, k, v, Features(dropout_p=0.3), seed=2**40 + 7)
    state = torch.tensor([2**40 + 7, 11], dtype=torch.int64)
    assert torch.equal(random.cpu(), random_map(state, 2, 3, 70, 100))


def test_alibi_of_lengths_that_the_kernels_get_wrong_is_an_error(kernel_device: str) -> None:
    """CK's forward kernels take the distance modulo 2^16."""
    q, k = normal(1, 1, 1, 64).to(kernel_device), normal(1, 65537, 1, 64).to(kernel_device)
    with pytest.raises(RuntimeError, match="distances in 16 bits, right for lengths up to 65536"):
        load_ops().fwd(q, k, k, torch.ones(1, device=kernel_device), softmax_scale=SCALE)
