"""The CK kernels with every feature through the public functions: drawn calls against the package's float64 references.

A call may be refused only when no installed kernel has its combination of features.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings

from flash_attn_rocm.errors import KernelUnavailableError
from tests.api import features
from tests.kernels.test_coverage import KERNELS

Call = features.Fixed | features.Varlen | features.KvCache
_DTYPES = {torch.float16: "fp16", torch.bfloat16: "bf16"}


def op_and_mode(call: Call) -> tuple[str, str]:
    if isinstance(call, features.Fixed):
        return "fmha_fwd", "batch"
    if isinstance(call, features.Varlen) and not call.page_size and call.num_splits < 2:
        return "fmha_fwd", "group"
    return "fmha_fwd_splitkv", "group"


def has_kernel(call: Call) -> bool:
    """Whether some kernel surely serves this call, masked or not, whatever its lengths."""
    o = call.options
    page = getattr(call, "page_size", 0)
    wanted: dict[str, Any] = {
        "dtype": _DTYPES[o.dtype],
        "mask": True,
        "bias": "none" if o.alibi == "none" else "alibi",
        "softcap": o.softcap > 0,
        "dropout": o.dropout_p > 0,
        "padding": "full",
    }
    op, mode = op_and_mode(call)
    return any(
        kernel["op"] == op
        and kernel["mode"] == mode
        and kernel["hdim_q"] >= o.headdim
        and (page == 0) == (kernel["page"] == 0)
        and (page == 0 or page % kernel["page"] == 0)
        and all(kernel[key] == value for key, value in wanted.items())
        for kernel in KERNELS
    )


OUTCOMES: Counter[str] = Counter()


def _run(kernel_device: str, call: Call) -> None:
    try:
        call.check(kernel_device)
    except KernelUnavailableError as error:
        assert not has_kernel(call), f"{call} was refused: {error}"
        OUTCOMES[f"{type(call).__name__} refused"] += 1
    else:
        OUTCOMES[f"{type(call).__name__} computed"] += 1


def _fixed(kernel_device: str, call: features.Fixed) -> None:
    _run(kernel_device, call)


def _varlen(kernel_device: str, call: features.Varlen) -> None:
    _run(kernel_device, call)


def _kvcache(kernel_device: str, call: features.KvCache) -> None:
    _run(kernel_device, call)


# The fixture only sets environment variables, so sharing it between examples is right.
_SETTINGS = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)

test_fixed = settings(_SETTINGS, max_examples=60)(given(call=features.fixed_calls())(_fixed))
test_varlen = settings(_SETTINGS, max_examples=60)(given(call=features.varlen_calls())(_varlen))
test_kvcache = settings(_SETTINGS, max_examples=80)(given(call=features.kvcache_calls())(_kvcache))
test_fixed_wide = pytest.mark.wide(settings(_SETTINGS, max_examples=2000)(given(call=features.fixed_calls())(_fixed)))
test_varlen_wide = pytest.mark.wide(
    settings(_SETTINGS, max_examples=2000)(given(call=features.varlen_calls())(_varlen))
)
test_kvcache_wide = pytest.mark.wide(
    settings(_SETTINGS, max_examples=2000)(given(call=features.kvcache_calls())(_kvcache))
)


def test_a_result_of_one_number(kernel_device: str) -> None:
    """128 values of both signs add up to little, and the same-dtype computation happens to be nearly exact."""
    options = features.Options(torch.bfloat16, 1, 1, 1, False, (-1, -1), None, 0.0, "heads", 0.0, "odd rows", 1)
    _run(kernel_device, features.KvCache(options, 1, 128, None, interleaved=False, page_size=32, batch=1))


@pytest.mark.parametrize("kind", ["Fixed", "Varlen", "KvCache"])
def test_drawn_calls_were_computed(kind: str) -> None:
    """Refusals alone would pass above."""
    total = OUTCOMES[f"{kind} computed"] + OUTCOMES[f"{kind} refused"]
    if total:  # with a selection of tests there may be none
        assert OUTCOMES[f"{kind} computed"] >= total / 4, OUTCOMES
