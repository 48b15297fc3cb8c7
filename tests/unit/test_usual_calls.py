"""Calls that skip the checks: what they are, and that every check would let them pass."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from flash_attn_rocm import usual_calls
from flash_attn_rocm.checks import check_inputs
from flash_attn_rocm.checks_sequences import check_kvcache_inputs, check_kvcache_values, check_varlen_inputs
from flash_attn_rocm.errors import InputError

SCORING: dict[str, Any] = {"dropout_p": 0.0, "softmax_scale": None, "window_size": (-1, -1), "softcap": 0.0}
NUMBERS: dict[str, list[Any]] = {
    "dropout_p": [0.25, 0, 1.0, -0.1, float("nan"), True, "x", None],
    "softmax_scale": [0.5, 1, 0.0, -0.5, 1e-45, 1e39, float("inf"), float("nan"), True, "x"],
    "window_size": [(5, 0), [5, 0], (5,), (5, 0, 1), (2**31, 0), (5, -(2**31) - 1), (1.0, 0), (True, 0), None, 3],
    "softcap": [30.0, 30, -1.0, 1e-45, 1e39, float("nan"), True, None],
}


def bf16(*shape: int) -> torch.Tensor:
    """Zeros."""
    return torch.zeros(shape, dtype=torch.bfloat16)


def tensors_like(good: torch.Tensor) -> list[Any]:
    """What may stand where this tensor stood: mostly wrong, by rank, size, dtype, layout, device or kind."""
    wrong = [None, 3, good[0], good[None], good[..., :-1], good[:0], good.float(), good.half(), good.to("meta")]
    odd = [good.to_sparse(), torch.nested.nested_tensor([good, good]), good.double(), good[..., 0:0]]
    return [*wrong, *odd, torch.nn.Parameter(good.clone(), requires_grad=False), good.expand(2, *good.shape)[1]]


def batch_calls() -> list[tuple[Any, ...]]:
    """One argument of a usual call replaced at a time, and pairs of numbers."""
    good = (bf16(2, 5, 4, 64), bf16(2, 7, 2, 64), bf16(2, 7, 2, 64), *SCORING.values(), None)
    calls = [good]
    for index in range(3):
        calls += [(*good[:index], other, *good[index + 1 :]) for other in tensors_like(good[index])]
    for index, name in enumerate(SCORING, start=3):
        calls += [(*good[:index], other, *good[index + 1 :]) for other in NUMBERS[name]]
    heads = [
        (bf16(2, 5, h, d), bf16(2, 7, hk, d), bf16(2, 7, hk, d))
        for h, hk, d in itertools.product((0, 3, 4), (0, 2), (0, 1, 256, 257))
    ]
    return [*calls, *((*qkv, *good[3:]) for qkv in heads), (*good[:-1], torch.ones(4))]


@pytest.fixture(autouse=True)
def _no_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands in tables is checked whether a call is usual or not."""
    monkeypatch.setenv("FLASH_ATTN_ROCM_CHECK_VALUES", "0")


def raises(check: Any, *arguments: Any, **named: Any) -> bool:
    """Whether a check refuses the call."""
    try:
        check(*arguments, **named)
    except (InputError, RuntimeError, TypeError, AttributeError):
        return True
    return False


def test_no_call_of_one_length_that_a_check_refuses_is_usual() -> None:
    usual = 0
    for q, k, v, *rest in batch_calls():
        named = dict(zip([*SCORING, "alibi_slopes"], rest, strict=True))
        if usual_calls.batch(q, k, v, *rest):
            usual += 1
            check_inputs(q, k, v, **named)
    assert usual >= 10  # among them the unchanged one
    assert usual_calls.batch(*batch_calls()[0])


VARLEN = ("q", "k", "v", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k")
TABLES = ("seqused_k", "leftpad_k", "block_table")


def varlen_calls(paged: bool) -> list[list[Any]]:
    """One argument of a usual call replaced at a time."""
    starts, used = torch.tensor([0, 5, 9], dtype=torch.int32), torch.tensor([3, 2], dtype=torch.int32)
    table = torch.zeros(2, 1, dtype=torch.int32) if paged else None
    kv = bf16(4, 16, 2, 64) if paged else bf16(9, 2, 64)
    good = [bf16(9, 4, 64), kv, kv, starts, starts.clone(), 5, 5, used, None, table, *SCORING.values(), None, 0]
    calls = [good, [*good[:7], None, *good[8:]]]
    for index, argument in enumerate(good):
        others: list[Any] = [5, -1, 2**31, True, 1.5, None]
        if isinstance(argument, torch.Tensor):
            others = [*tensors_like(argument), argument.long(), argument[:-1], torch.cat([argument, argument])]
        elif 10 <= index < 14:
            others = NUMBERS[list(SCORING)[index - 10]]
        calls += [[*good[:index], other, *good[index + 1 :]] for other in others]
    return calls


@pytest.mark.parametrize("paged", [False, True])
def test_no_varlen_call_that_a_check_refuses_is_usual(paged: bool) -> None:
    calls = varlen_calls(paged)
    names = [*TABLES, *SCORING, "alibi_slopes", "num_splits"]
    for call in calls:
        if usual_calls.varlen(*call):
            check_varlen_inputs(*call[:7], **dict(zip(names, call[7:], strict=True)))
    assert all(usual_calls.varlen(*call) for call in calls[:2])


KVCACHE = ("k", "v", "rotary_cos", "rotary_sin", "cache_seqlens", "cache_batch_idx", "cache_leftpad", "block_table")


@pytest.mark.parametrize("appended", [0, 1, 3])
@pytest.mark.parametrize("paged", [False, True])
def test_no_call_on_a_cache_that_a_check_refuses_is_usual(paged: bool, appended: int) -> None:
    lengths = torch.tensor([3, 2], dtype=torch.int32)
    table = torch.zeros(2, 2, dtype=torch.int32) if paged else None
    cache = bf16(4, 16, 2, 64) if paged else bf16(2, 32, 2, 64)
    scoring = [None, (-1, -1), 0.0]
    new = [bf16(2, appended, 2, 64)] * 2 if appended else [None, None]
    good = [bf16(2, 1, 4, 64), cache, cache, *new, None, None, lengths, None, None, table, *scoring, None, 0]
    names = [*KVCACHE, "softmax_scale", "window_size", "softcap", "alibi_slopes", "num_splits"]
    calls = [good, [*good[:7], 3, *good[8:]]]
    calls += [] if appended else [[*good[:7], None, *good[8:]]]
    assert all(usual_calls.kvcache(*call) for call in calls)
    expanded = [cache[:1].expand_as(cache), cache[:, :1].expand_as(cache), cache[:, :, :1].expand_as(cache)]
    calls += [[*good[:at], other, *good[at + 1 :]] for at in (1, 2) for other in expanded]
    for index, argument in enumerate(good):
        others: list[Any] = [5, -1, 2**31, True, 1.5, None, bf16(2, 1, 2, 64), lengths]
        if isinstance(argument, torch.Tensor):
            others = [*tensors_like(argument), argument.long(), argument[:-1], torch.cat([argument, argument])]
        calls += [[*good[:index], other, *good[index + 1 :]] for other in others]
    for call in calls:
        if usual_calls.kvcache(*call):
            named = dict(zip(names, call[3:], strict=True))
            refused = raises(check_kvcache_inputs, *call[:3], **named)
            # A length as a number, and room for new keys, are looked at with the values.
            values = (call[1], *(named[name] for name in ("k", *KVCACHE[4:])))
            assert not refused or raises(check_kvcache_values, *values)
