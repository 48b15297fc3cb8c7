"""Where the keys of a varlen call are: lengths apart from starts, as vLLM gives them, gaps, padding in front."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from flash_attn_rocm import flash_attn_with_kvcache
from flash_attn_rocm.errors import InputError, KernelUnavailableError
from flash_attn_rocm.flash_attn_interface import _flash_attn_varlen_forward
from flash_attn_rocm.reference import Mask, Scoring
from flash_attn_rocm.reference_sequences import varlen_in
from tests.kernels.test_features import normal, starts

SCALE = 0.125
NAN = float("nan")
LENGTHS_Q = [3, 1, 70, 0]


def ints(values: list[int]) -> Tensor:
    """A table."""
    return torch.tensor(values, dtype=torch.int32)


def check(
    device: str, k: Tensor, v: Tensor, starts_k: Tensor, *, longest: int, causal: bool, **tables: Tensor | None
) -> None:
    """Call _flash_attn_varlen_forward and compare with float64; bound: twice the error of the same in bfloat16."""
    q, starts_q = normal(sum(LENGTHS_Q), 4, 64), starts(LENGTHS_Q)
    on_device = {name: None if table is None else table.to(device) for name, table in tables.items()}
    out, lse, _, _ = _flash_attn_varlen_forward(
        q.to(device),
        k.to(device),
        v.to(device),
        starts_q.to(device),
        starts_k.to(device),
        max(LENGTHS_Q),
        longest,
        0.0,
        SCALE,
        causal,
        **on_device,  # type: ignore[arg-type]
    )
    scoring = Scoring(SCALE, Mask(right=0 if causal else -1))
    exact, exact_lse = varlen_in(torch.float64, q, k, v, starts_q, starts_k, scoring, **tables)
    same_dtype, _ = varlen_in(torch.bfloat16, q, k, v, starts_q, starts_k, scoring, **tables)
    allowed = 2 * (same_dtype.double() - exact).abs().max().item() + 1e-5
    assert (out.cpu().double() - exact).abs().max().item() <= allowed
    hidden = torch.isneginf(exact_lse)
    assert torch.equal(torch.isneginf(lse.cpu()), hidden)
    torch.testing.assert_close(lse.cpu().double()[~hidden], exact_lse[~hidden], atol=1e-4, rtol=1e-5)


def paged(used: list[int], page: int) -> tuple[Tensor, Tensor, Tensor]:
    """Keys and values in pages, NaN beyond the used slots and in pages of nobody, and block_table."""
    per_sequence = -(-max(used) // page)
    order = torch.randperm(2 * len(used) * per_sequence, generator=torch.Generator().manual_seed(3))
    table = order[: len(used) * per_sequence].reshape(len(used), per_sequence).to(torch.int32)
    stores = []
    for seed in (1, 2):
        store = torch.full((2 * len(used) * per_sequence, page, 2, 64), NAN, dtype=torch.bfloat16)
        for b, length in enumerate(used):
            rows = normal(length, 2, 64, seed=seed + 10 * b)
            for first in range(0, length, page):
                part = rows[first : first + page]
                store[int(table[b, first // page]), : part.shape[0]] = part
        stores.append(store)
    return stores[0], stores[1], table


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("dummy", ["zeros", "starts of q", "ascending"])
@pytest.mark.parametrize("page", [16, 64])
def test_lengths_in_pages_come_from_seqused_k_alone(device: str, page: int, dummy: str, causal: bool) -> None:
    """vLLM's call: cu_seqlens_k is a dummy beside seqused_k and block_table."""
    used = [90, 17, 130, 5]
    k, v, table = paged(used, page)
    starts_k = {
        "zeros": ints([0] * 5),
        "starts of q": starts(LENGTHS_Q),
        "ascending": ints([0, 1000, 2000, 3000, 4000]),
    }[dummy]
    check(device, k, v, starts_k, longest=max(used), causal=causal, seqused_k=ints(used), block_table=table)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_sequences_may_have_more_room_than_the_longest_has_keys(device: str, causal: bool) -> None:
    """Gaps after the used keys hold NaN; max_seqlen_k counts used keys only."""
    used, room = [90, 17, 130, 0], [200, 20, 150, 7]
    k, v = (normal(sum(room), 2, 64, seed=seed) for seed in (1, 2))
    first = 0
    for length, slots in zip(used, room, strict=True):
        k[first + length : first + slots] = v[first + length : first + slots] = NAN
        first += slots
    check(device, k, v, starts(room), longest=max(used), causal=causal, seqused_k=ints(used))


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("with_used", [False, True], ids=["leftpad", "leftpad and seqused"])
def test_padding_before_the_keys_of_a_sequence(device: str, with_used: bool, causal: bool) -> None:
    """One sequence without padding, one that is nothing but padding; NaN in all of it."""
    pads, room = [33, 0, 1, 7], [90, 17, 130, 7]
    used = [80, 17, 100, 7] if with_used else room
    k, v = (normal(sum(room), 2, 64, seed=seed) for seed in (1, 2))
    first = 0
    for pad, length, slots in zip(pads, used, room, strict=True):
        for tensor in (k, v):
            tensor[first : first + pad] = NAN
            tensor[first + length : first + slots] = NAN
        first += slots
    check(
        device,
        k,
        v,
        starts(room),
        longest=max(room),
        causal=causal,
        leftpad_k=ints(pads),
        seqused_k=ints(used) if with_used else None,
    )


def test_gradients_of_keys_behind_padding(device: str) -> None:
    """Those of the padding itself are zeros, the others what each sequence gives alone without its padding."""
    from flash_attn_rocm import calls, flash_attn_func

    pads, room = [33, 0], [40, 17]
    q, k, v = (normal(sum(rows), 2, 64, seed=s).to(device) for rows, s in (([3, 5], 0), (room, 1), (room, 2)))
    weight = normal(8, 2, 64, seed=3).to(device)

    def leaves() -> list[Tensor]:
        return [tensor.clone().requires_grad_() for tensor in (q, k, v)]

    padded, alone = leaves(), leaves()
    options: dict[str, Any] = {"dropout_p": 0.0, "softmax_scale": SCALE, "causal": True, "window_size": (-1, -1)}
    result = calls.varlen_attention(
        *padded,
        *(starts(lengths).to(device) for lengths in ([3, 5], room)),
        5,
        40,
        **options,
        softcap=0.0,
        alibi_slopes=None,
        block_table=None,
        leftpad_k=ints(pads).to(device),
        want_lse=True,
        want_map=False,
    )
    (result.out * weight).sum().backward()
    rows = [(slice(0, 3), slice(33, 40)), (slice(3, 8), slice(40, 57))]
    outs = [
        flash_attn_func(alone[0][None, queries], alone[1][None, keys], alone[2][None, keys], **options)
        for queries, keys in rows
    ]
    (torch.cat(outs, 1)[0] * weight).sum().backward()  # type: ignore[arg-type]
    for one, other in zip(padded, alone, strict=True):
        torch.testing.assert_close(one.grad, other.grad, atol=2e-2, rtol=2e-2)
        if one is not padded[0]:
            assert one.grad is not None
            assert (one.grad[:33] == 0).all()


def test_used_lengths_beyond_what_there_is_are_refused(device: str) -> None:
    if device == "cuda":
        pytest.skip("lengths in GPU memory are not looked at")
    q, k = normal(74, 4, 64), normal(60, 2, 64)
    for used, longest, message in (([20, 21, 20, 0], 60, "21"), ([20, 20, 11, 0], 10, "20")):
        with pytest.raises(InputError, match=rf"seqused_k\[\d\] is {message}; allowed: 0 to"):
            _flash_attn_varlen_forward(
                q, k, k, starts(LENGTHS_Q), starts([20] * 3 + [0]), 70, longest, 0.0, SCALE, False, seqused_k=ints(used)
            )


def test_the_op_checks_used_lengths_of_its_own(kernel_device: str) -> None:
    if kernel_device == "cuda":
        pytest.skip("lengths in GPU memory are not looked at")
    from tests.kernels.test_features import load_ops

    q, k = normal(6, 4, 64), normal(60, 2, 64)
    arguments = (q, k, k, starts([3, 3]), starts([20, 20]))
    for used, longest, message in (([20, 21], 60, "21 at 1; expected 0 to 20"), ([11, 20], 10, "11 at 0; .*to 10")):
        with pytest.raises(RuntimeError, match=f"seqused_k has {message}"):
            load_ops().varlen_fwd(*arguments, ints(used), max_seqlen_q=3, max_seqlen_k=longest, softmax_scale=SCALE)


def test_padding_that_no_kernel_skips_is_refused_with_what_to_do(kernel_device: str) -> None:
    k, v, table = (tensor.to(kernel_device) for tensor in paged([90, 17], 16))
    q = normal(2, 4, 64).to(kernel_device)
    rows = starts([1, 1]).to(kernel_device)
    pads, used = (ints(values).to(kernel_device) for values in ([16, 3], [90, 17]))
    tables = {"leftpad_k": pads, "seqused_k": used, "block_table": table}
    with pytest.raises(KernelUnavailableError, match=r"leftpad_k and block_table .*sdpa, or leave whole pages"):
        _flash_attn_varlen_forward(q, k, v, rows, rows, 1, 90, 0.0, SCALE, False, **tables)
    with pytest.raises(KernelUnavailableError, match=r"cache_leftpad and block_table .*sdpa, or leave whole pages"):
        flash_attn_with_kvcache(q[:, None], k, v, cache_seqlens=used, cache_leftpad=pads, block_table=table)
    dense = normal(107, 2, 64).to(kernel_device)
    room = starts([90, 17]).to(kernel_device)
    with pytest.raises(KernelUnavailableError, match=r"leftpad_k is given with dropout.*sdpa, or move the starts"):
        _flash_attn_varlen_forward(q, dense, dense, rows, room, 1, 90, 0.5, SCALE, False, leftpad_k=pads)


def test_a_cache_that_rows_do_not_describe_is_refused_with_what_to_do(kernel_device: str) -> None:
    q = normal(2, 1, 1, 64).to(kernel_device)
    memory = torch.zeros(20 * 64 + 8, dtype=q.dtype, device=kernel_device)
    odd = memory.as_strided((2, 10, 1, 64), (648, 64, 64, 1))
    other = torch.zeros(2, 12, 1, 64, dtype=q.dtype, device=kernel_device)[:, :10]
    for caches in ((odd, odd.clone()), (odd.contiguous(), other)):
        with pytest.raises(KernelUnavailableError, match=r"same whole number of rows.*BACKEND=sdpa"):
            flash_attn_with_kvcache(q, *caches)
