"""The backward ops with drawn lengths, heads, head dims, masks and features, against float64 autograd."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kernels.feature_reference import Features
from tests.kernels.test_backward import make, run_batch, run_varlen_backward

MASKS = st.one_of(
    st.just(Features()),
    st.just(Features(causal=True)),
    st.builds(lambda left, right: Features(window=(left, right)), st.integers(-1, 60), st.integers(-1, 60)),
)
HDIMS = st.one_of(st.sampled_from([64, 128]), st.integers(1, 16).map(lambda eighth: 8 * eighth))


@dataclass(frozen=True)
class Call:
    """A call that a kernel of the profile ci covers."""

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
    mask, hdim = draw(MASKS), draw(HDIMS)
    kind = draw(st.sampled_from(["plain", "plain", "dropout", "alibi and dropout", "deterministic"]))
    if kind == "alibi and dropout":
        return Call(mask, 64, torch.bfloat16, 0.3, alibi=True, deterministic=False)
    if kind == "deterministic":
        return Call(Features(), 64, torch.bfloat16, 0.0, alibi=False, deterministic=True)
    dtype = torch.bfloat16 if kind == "dropout" else draw(st.sampled_from([torch.float16, torch.bfloat16]))
    return Call(mask, hdim, dtype, 0.2 if kind == "dropout" else 0.0, alibi=False, deterministic=False)


@st.composite
def varlen_calls(draw: st.DrawFn) -> Call:
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
    how = {"hdim": call.hdim, "slopes": slopes, "deterministic": call.deterministic, "drawn": True}
    run_varlen_backward(kernel_device, lengths, call.features, **how)


# The fixture only sets environment variables, so sharing it between examples is right.
_SETTINGS = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)

test_batch = settings(_SETTINGS, max_examples=25)(given(**BATCH)(_batch))
test_varlen = settings(_SETTINGS, max_examples=25)(given(**VARLEN)(_varlen))
test_batch_wide = pytest.mark.wide(settings(_SETTINGS, max_examples=300)(given(**BATCH)(_batch)))
test_varlen_wide = pytest.mark.wide(settings(_SETTINGS, max_examples=300)(given(**VARLEN)(_varlen)))
