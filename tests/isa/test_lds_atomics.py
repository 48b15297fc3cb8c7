"""LDS atomics, each alone: what it returns and what it leaves in memory (ISA guide, chapter 16, "LDS instructions")."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.isa.atomic_operations import GFX12_ONLY, LANES, OLD, OPERATIONS, decode, definition, encode, operands, same
from tests.isa.conftest import RDNA, has
from tests.isa.hip_runtime import Hip, pointers

CASES = [(gpu, name) for gpu in RDNA for name in OPERATIONS if has(gpu, "GFX12") or name not in GFX12_ONLY]


@pytest.fixture
def code(isa_kernels: Path, rdna: str) -> Path:
    return isa_kernels / f"{rdna}_lds.co"


def run(hip: Hip, code: Path, kernel: str, raw: np.ndarray) -> np.ndarray:
    """(LANES, 2) 64-bit words: the destination register pair, and the memory afterwards."""
    second = np.zeros((LANES, 2), np.uint64)
    second[:, 0] = raw[2]
    buffers = [hip.buffer(np.zeros((LANES, 2), np.uint64)), hip.buffer(raw[:2].T.copy()), hip.buffer(second)]
    hip.launch(hip.kernel(code, kernel), pointers(*buffers).ljust(32, b"\0"))
    result = buffers[0].read()
    for buffer in buffers:
        buffer.free()
    return result


@pytest.mark.parametrize(("rdna", "name"), CASES, indirect=["rdna"])
def test_operation(hip: Hip, code: Path, rdna: str, name: str) -> None:
    """With and without the value returned; a 32-bit operation leaves the high halves alone."""
    define = definition(rdna, name)
    operation, kind = name.rsplit("_", 1)
    forms = [f"ds_{operation}_rtn_{kind}"] + ([] if operation == "storexchg" else [f"ds_{name}"])
    width = max(int(name[-2:]), 32)
    mask = (1 << width) - 1
    for seed in range(6):
        raw = operands(name, seed)
        if operation == "cmpstore":
            raw[2, ::2] = raw[0, ::2]
        for form in forms:
            result = run(hip, code, form, raw)
            for lane in range(LANES):
                memory, data, second = (int(column[lane]) for column in raw)
                expected = encode(name, define(*(decode(name, v) for v in (memory, data, second))))
                got_register, got_memory = (int(word) for word in result[lane])
                label = f"{form}: memory {memory:#x}, data {data:#x}, second {second:#x}"
                assert same(name, got_memory & mask, expected), f"{label}: left {got_memory:#x}, not {expected:#x}"
                if form != f"ds_{name}":
                    assert got_register & mask == memory & mask, f"{label}: returned {got_register:#x}"
                rest = got_register if form == f"ds_{name}" else got_register & ~mask
                assert rest == (OLD << 32 | OLD) & (~0 if form == f"ds_{name}" else ~mask)


def test_every_lane_of_every_wave_counts(hip: Hip, code: Path) -> None:
    """128 lanes add 1 to one dword: each sees another value, and no barrier is needed between them."""
    result = hip.buffer(np.zeros(128, np.uint32))
    hip.launch(hip.kernel(code, "ds_tickets"), pointers(result).ljust(32, b"\0"), block=(128, 1, 1))
    values = sorted(result.read().tolist())
    result.free()
    assert values == list(range(128))
