"""Vector compares: v_cmp gives 0 for inactive lanes, v_cmpx writes exec; NaN makes only the negated forms true."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.isa.hip_runtime import Hip, pointers
from tests.isa.lane_tests import LANES, operands, typed

ACTIVE = 0x7FFFFFFC  # lanes 0, 1 and 31 are off for v_cmp
FLOAT_OPS = ["lt", "eq", "le", "gt", "lg", "ge", "o", "u", "nge", "nlg", "ngt", "nle", "neq", "nlt"]
INTEGER_OPS = ["lt", "eq", "le", "gt", "ne", "ge"]
NAMES = [f"{op}_{kind}" for op in FLOAT_OPS for kind in ("f32", "f64")]
NAMES += [f"{op}_{kind}" for op in INTEGER_OPS for kind in ("i32", "u32", "i64", "u64", "u16")]


def define(op: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    plain = {"lt": a < b, "eq": a == b, "le": a <= b, "gt": a > b, "ge": a >= b, "ne": a != b, "neq": a != b}
    if op in plain:
        return plain[op]
    unordered = (a != a) | (b != b)
    return {
        "o": ~unordered,
        "u": unordered,
        "lg": (a != b) & ~unordered,
        "nlg": ~((a != b) & ~unordered),
        "nge": ~(a >= b),
        "ngt": ~(a > b),
        "nle": ~(a <= b),
        "nlt": ~(a < b),
    }[op]


@pytest.mark.parametrize("name", NAMES)
def test_compare(hip: Hip, isa_kernels: Path, rdna: str, name: str) -> None:
    op, kind = name.rsplit("_", 1)
    kind = {"i32": "s32", "i64": "s64", "u16": "u32"}.get(kind, kind)
    inputs = operands([kind, kind])
    groups = len(inputs[0]) // LANES
    result = hip.buffer(np.zeros((groups, 2), np.uint32))
    buffers = [hip.buffer(column) for column in inputs]
    hip.launch(
        hip.kernel(isa_kernels / f"{rdna}_compare.co", f"op_v_cmp_{name}"),
        pointers(result, *buffers).ljust(32, b"\0"),
        (groups, 1, 1),
    )
    masks = result.read()
    for buffer in [result, *buffers]:
        buffer.free()
    a, b = (typed(column, kind) for column in inputs)
    if name.endswith("u16"):  # the kernel compares the low half of a with the high half of b
        a, b = a & 0xFFFF, b >> 16
    bits = define(op, a, b).reshape(groups, LANES).astype(np.uint64)
    expected = (bits << np.arange(LANES, dtype=np.uint64)).sum(axis=1).astype(np.uint32)
    np.testing.assert_array_equal(masks[:, 0], expected & ACTIVE, err_msg=f"v_cmp_{name}")
    np.testing.assert_array_equal(masks[:, 1], expected, err_msg=f"v_cmpx_{name}")
