"""Moves between lanes and scalars, initial register state, and branches."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from tests.isa.conftest import RDNA, has
from tests.isa.hip_runtime import Hip, pointers
from tests.isa.lane_tests import run_lanes


@pytest.fixture
def code(isa_kernels: Path, rdna: str) -> Path:
    return isa_kernels / f"{rdna}_lanes.co"


DATA = np.arange(32, dtype=np.uint32) * 3 + 100
SELECTORS = 0x89ABCDEF_76543210
EXPECTED = {
    "readfirstlane": np.where(np.arange(32) >= 5, DATA[5], DATA),
    "readfirstlane_empty": np.full(32, DATA[0]),
    "readlane": np.full(32, DATA[45 % 32]),
    "writelane": np.where(np.arange(32) == 9, 0x77, DATA),
    "permlanex16": np.array([DATA[((i & 16) ^ 16) | (SELECTORS >> (4 * (i & 15))) & 15] for i in range(32)]),
    "permlane16": np.array([DATA[(i & 16) | (SELECTORS >> (4 * (i & 15))) & 15] for i in range(32)]),
    "permlane64": np.full(32, 7),
    "swap": np.where(np.arange(32) < 5, DATA, 7 + DATA * 65536),
    "swizzle_quad": np.array([DATA[i & ~3 | (3, 0, 2, 1)[i & 3]] for i in range(32)]),
    "swizzle_bits": np.array([DATA[((i & 0x1C) | 2) ^ 9] for i in range(32)]),
    "getreg": np.full(32, 0xF0),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_lane_move(hip: Hip, code: Path, name: str) -> None:
    np.testing.assert_array_equal(run_lanes(hip, code, name, [DATA], 32), EXPECTED[name])


@pytest.mark.parametrize("rdna", [gpu for gpu in RDNA if not has(gpu, "GFX12")], indirect=True)
def test_hints_change_nothing(hip: Hip, code: Path) -> None:
    """Scheduling, waits and cache control of gfx11, and the message that gives registers back."""
    np.testing.assert_array_equal(run_lanes(hip, code, "hints", [DATA], 32), ~DATA)


@pytest.mark.parametrize(("fetch", "bound"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_permlane_of_inactive_lanes(hip: Hip, code: Path, fetch: int, bound: int) -> None:
    """Lanes 0-7 are inactive: op_sel[0] reads them all the same, op_sel[1] as 0; else the reader has no result."""
    expected = DATA.copy()
    for lane in range(8, 32):
        source = ((lane & 16) ^ 16) | (SELECTORS >> (4 * (lane & 15))) & 15
        if source >= 8 or fetch:
            expected[lane] = DATA[source]
        elif bound:
            expected[lane] = 0
    np.testing.assert_array_equal(run_lanes(hip, code, f"permlanex16_{fetch}{bound}", [DATA], 32), expected)


def test_ids(hip: Hip, code: Path) -> None:
    """Work-item ids of a (4, 3, 2) block, workgroup ids of a (2, 3, 2) grid as z << 16 | y << 8 | x."""
    result = hip.buffer(np.zeros((12, 24, 4), np.uint32))
    hip.launch(hip.kernel(code, "ids"), pointers(result).ljust(32, b"\0"), (2, 3, 2), (4, 3, 2))
    got = result.read()
    result.free()
    for group in range(12):
        for item in range(24):
            ids = [item % 4, item // 4 % 3, item // 12, group // 6 << 16 | group // 2 % 3 << 8 | group % 2]
            assert got[group, item].tolist() == ids


@pytest.mark.parametrize("rounds", [2, 3, 10, 1000])
def test_loop(hip: Hip, code: Path, rounds: int) -> None:
    """Even lanes sum 1..n; odd lanes leave the loop at n // 2."""
    result = hip.buffer(np.zeros(32, np.uint32))
    hip.launch(hip.kernel(code, "loop_sum"), (pointers(result) + struct.pack("<I", rounds)).ljust(32, b"\0"))
    got = result.read()
    result.free()
    half = rounds // 2
    np.testing.assert_array_equal(
        got, [half * (half + 1) // 2 if lane % 2 else rounds * (rounds + 1) // 2 for lane in range(32)]
    )


def test_branches(hip: Hip, code: Path) -> None:
    result = hip.buffer(np.zeros(32, np.uint32))
    hip.launch(hip.kernel(code, "branches"), pointers(result).ljust(32, b"\0"))
    got = result.read()
    result.free()
    taken = [0, 3, 4, 7, 8, 11]  # scc1 after a true compare, scc0 after a false one, vccz, vccnz, execz, execnz
    np.testing.assert_array_equal(got, np.full(32, sum(1 << bit for bit in taken)))
