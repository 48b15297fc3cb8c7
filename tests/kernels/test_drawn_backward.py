"""The backward ops with drawn lengths, heads, head dims, masks and features, against float64 autograd.

The wide draws take every combination; one may be refused only when no installed kernel has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kernels.feature_reference import Features
from tests.kernels.test_backward import make, run_batch, run_varlen_backward
from tests.kernels.test_coverage import DTYPES, KERNELS

MASKS = st.one_of(
    st.just(Features()),
    st.just(Features(causal=True)),
    st.builds(lambda left, right: Features(window=(left, right)), st.integers(-1, 60), st.integers(-1, 60)),
)
HDIMS = st.one_of(st.sampled_from([64, 128]), st.integers(1, 16).map(lambda eighth: 8 * eighth))
WIDE_HDIMS = st.one_of(st.sampled_from([136, 160, 192, 200, 256]), st.integers(17, 32).map(lambda eighth: 8 * eighth))


@dataclass(frozen=True)
class Call:
    """One backward call but for its lengths and heads."""

    mask: Features
    hdim: int
    dtype: torch.dtype
    dropout_p: float
    alibi: bool
    deterministic: bool

    @property
    def features(self) -> Features:
        return Features(self.mask.causal, self.mask.window, dropout_p=self.dropout_p)


@st.composite
def batch_calls(draw: st.DrawFn) -> Call:
    """Calls that a kernel of the profile ci covers."""
    mask, hdim = draw(MASKS), draw(HDIMS)
    kind = draw(st.sampled_from(["plain", "plain", "wide", "wide", "dropout", "alibi and dropout", "deterministic"]))
    if kind == "wide":
        wide = draw(WIDE_HDIMS)
        return Call(mask, wide, torch.bfloat16, 0.0, alibi=False, deterministic=wide <= 192 and draw(st.booleans()))
    if kind == "alibi and dropout":
        return Call(mask, 64, torch.bfloat16, 0.3, alibi=True, deterministic=False)
    if kind == "deterministic":
        return Call(Features(), 64, torch.bfloat16, 0.0, alibi=False, deterministic=True)
    dtype = torch.bfloat16 if kind == "dropout" else draw(st.sampled_from([torch.float16, torch.bfloat16]))
    return Call(mask, hdim, dtype, 0.2 if kind == "dropout" else 0.0, alibi=False, deterministic=False)


@st.composite
def varlen_calls(draw: st.DrawFn) -> Call:
    """As above, with lengths from cu_seqlens."""
    alibi, dropout_p = draw(st.sampled_from([(False, 0.0), (True, 0.0), (False, 0.2)]))
    return Call(draw(MASKS), draw(HDIMS), torch.bfloat16, dropout_p, alibi=alibi, deterministic=not alibi)


BATCH = {
    "call": batch_calls(),
    "lengths": st.tuples(st.integers(1, 150), st.integers(1, 150)),
    "batch": st.integers(1, 2),
    "heads_k": st.integers(1, 2),
    "group": st.integers(1, 3),
}
VARLEN = {
    "call": varlen_calls(),
    "lengths": st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=1, max_size=5),
}


def _batch(kernel_device: str, call: Call, lengths: tuple[int, int], batch: int, heads_k: int, group: int) -> None:
    slopes = torch.rand(heads_k * group, generator=torch.Generator().manual_seed(1)) if call.alibi else None
    tensors = make(batch, lengths, (heads_k * group, heads_k), call.hdim, call.dtype)
    run_batch(kernel_device, tensors, call.features, slopes=slopes, deterministic=call.deterministic, drawn=True)


def _varlen(kernel_device: str, call: Call, lengths: list[tuple[int, int]]) -> None:
    slopes = torch.rand(len(lengths), 4, generator=torch.Generator().manual_seed(1)) if call.alibi else None
    how = {"hdim": call.hdim, "dtype": call.dtype, "slopes": slopes, "deterministic": call.deterministic}
    run_varlen_backward(kernel_device, lengths, call.features, **how, drawn=True)


ANY_CALL = st.builds(
    Call,
    mask=MASKS,
    hdim=st.one_of(st.sampled_from([32, 64, 96, 128, 192, 256]), st.integers(1, 32).map(lambda eighth: 8 * eighth)),
    dtype=st.sampled_from(list(DTYPES.values())),
    dropout_p=st.sampled_from([0.0, 0.2]),
    alibi=st.booleans(),
    deterministic=st.booleans(),
)
OUTCOMES: Counter[str] = Counter()


def has_kernels(call: Call, mode: str) -> bool:
    """Whether one forward and one backward kernel surely serve this call, masked or not, whatever its lengths."""
    wanted = {
        "mode": mode,
        "mask": True,
        "bias": "alibi" if call.alibi else "none",
        "softcap": False,
        "dropout": call.dropout_p > 0,
        "padding": "full",
        "page": 0,
    }
    serving = [
        kernel
        for kernel in KERNELS
        if DTYPES[kernel["dtype"]] == call.dtype
        and kernel["hdim_q"] >= call.hdim
        and all(kernel.get(key) == value for key, value in wanted.items())
    ]
    forward = any(kernel["op"] == "fmha_fwd" for kernel in serving)
    return forward and any(
        kernel["op"] == "fmha_bwd" and kernel["deterministic"] == call.deterministic for kernel in serving
    )


def _run_any(run: Callable[[], None], call: Call, mode: str) -> None:
    try:
        run()
    except RuntimeError as error:
        if "no installed kernel: " not in str(error):
            raise
        assert not has_kernels(call, mode), f"{call} was refused: {error}"
        OUTCOMES[f"{mode} refused"] += 1
    else:
        OUTCOMES[f"{mode} computed"] += 1


def _any_batch(kernel_device: str, call: Call, lengths: tuple[int, int], batch: int, heads_k: int, group: int) -> None:
    _run_any(lambda: _batch(kernel_device, call, lengths, batch, heads_k, group), call, "batch")


def _any_varlen(kernel_device: str, call: Call, lengths: list[tuple[int, int]]) -> None:
    _run_any(lambda: _varlen(kernel_device, call, lengths), call, "group")


# The fixture only sets environment variables, so sharing it between examples is right.
_SETTINGS = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)

test_batch = settings(_SETTINGS, max_examples=35)(given(**BATCH)(_batch))
test_varlen = settings(_SETTINGS, max_examples=25)(given(**VARLEN)(_varlen))
ANY_BATCH = {**BATCH, "call": ANY_CALL}
ANY_VARLEN = {**VARLEN, "call": ANY_CALL}
test_batch_wide = pytest.mark.wide(settings(_SETTINGS, max_examples=600)(given(**ANY_BATCH)(_any_batch)))
test_varlen_wide = pytest.mark.wide(settings(_SETTINGS, max_examples=600)(given(**ANY_VARLEN)(_any_varlen)))


@pytest.mark.wide
@pytest.mark.parametrize("mode", ["batch", "group"])
def test_drawn_calls_were_computed(mode: str) -> None:
    """Refusals alone would pass above; the kernels of the profile ci have few of the combinations."""
    total = OUTCOMES[f"{mode} computed"] + OUTCOMES[f"{mode} refused"]
    if not total:
        pytest.skip("counts what the wide draws of this file did, which were not run before it")
    assert OUTCOMES[f"{mode} computed"] >= total / 20, OUTCOMES
