"""Atomics on memory: global, flat and buffer, with and without the old value (ISA guide, chapters 9 and 11)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.isa.atomic_operations import GFX12_ONLY, LANES, OLD, OPERATIONS, decode, definition, encode, operands, same
from tests.isa.conftest import RDNA, has
from tests.isa.hip_runtime import Hip, HipError, pointers

LDS_NAMES = {"swap": "storexchg", "cmpswap": "cmpstore"}
LDS_ONLY = {"rsub", "mskor", "storexchg", "cmpstore", "sub_clamp", "cond_sub"}
NAMES = [name for name in OPERATIONS if name.rsplit("_", 1)[0] not in LDS_ONLY and name[-3:] != "f64"]
NAMES += [f"{name}_b{bits}" for name in LDS_NAMES for bits in (32, 64)]
CASES = [(gpu, name) for gpu in RDNA for name in NAMES if has(gpu, "GFX12") or name not in GFX12_ONLY]


@pytest.fixture
def code(isa_kernels: Path, rdna: str) -> Path:
    return isa_kernels / f"{rdna}_atomics.co"


def run(hip: Hip, code: Path, kernel: str, raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """64-bit words per lane: the destination register pair, and the memory afterwards."""
    rest = np.zeros((LANES, 2), np.uint64)
    second = rest.copy()
    second[:, 0] = raw[2]
    buffers = [hip.buffer(raw[:2].T.copy()), hip.buffer(rest), hip.buffer(second)]
    hip.launch(hip.kernel(code, kernel), pointers(*buffers).ljust(32, b"\0"))
    result = buffers[1].read()[:, 0], buffers[0].read()[:, 0]
    for buffer in buffers:
        buffer.free()
    return result


@pytest.mark.parametrize(("rdna", "name"), CASES, indirect=["rdna"])
@pytest.mark.parametrize("space", ["global", "flat", "buffer"])
def test_operation(hip: Hip, code: Path, rdna: str, space: str, name: str) -> None:
    """The buffer ends before the last lane's value: its memory stays, and 0 comes back."""
    operation, kind = name.rsplit("_", 1)
    known = f"{LDS_NAMES.get(operation, operation)}_{kind}"
    define, width = definition(rdna, known), max(int(name[-2:]), 32)
    mask = (1 << width) - 1
    for seed in range(4):
        raw = operands(known, seed)
        if operation == "cmpswap":
            if width == 32:  # both operands are in the data's 8 bytes
                raw[2] = np.where(np.arange(LANES) % 2, raw[0] & np.uint64(mask), raw[2])
                raw[1] = (raw[1] & np.uint64(mask)) | raw[2] << np.uint64(32)
            else:
                raw[2, ::2] = raw[0, ::2]
        for ending in ("", "_rtn"):
            registers, memory = run(hip, code, f"{space}_{name}{ending}", raw)
            for lane in range(LANES):
                before, data, second = (int(column[lane]) for column in raw)
                outside = space == "buffer" and lane == LANES - 1
                values = (decode(known, value & mask) for value in (before, data, second))
                expected = before & mask if outside else encode(known, define(*values))
                label = f"{space}_{name}{ending}: memory {before:#x}, data {data:#x}, second {second:#x}, lane {lane}"
                assert same(known, int(memory[lane]) & mask, expected), f"{label}: left {int(memory[lane]):#x}"
                assert int(memory[lane]) & ~mask == before & ~mask, label
                returned = int(registers[lane]) & mask
                if ending:
                    assert returned == (0 if outside else before & mask), f"{label}: returned {returned:#x}"
                else:
                    assert returned == (OLD << 32 | OLD) & mask, label


def test_atomics_are_aligned(hip: Hip, code: Path) -> None:
    memory = hip.buffer(np.zeros((LANES + 1, 2), np.uint64))
    other = hip.buffer(np.zeros((LANES, 2), np.uint64))
    arguments = np.array([memory.address + 4, other.address, other.address], np.uint64).tobytes()
    with pytest.raises(HipError) as caught:
        hip.launch(hip.kernel(code, "global_add_u64"), arguments.ljust(32, b"\0"))
    memory.free()
    other.free()
    assert "atomic access that is not aligned to its size" in caught.value.fault
