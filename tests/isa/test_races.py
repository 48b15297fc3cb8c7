"""The race detector on random programs of LDS accesses, against the rule itself, byte by byte."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.isa.hip_runtime import LAUNCH_FAILURE, Hip, HipError

WAVES, LANES, LDS_BYTES, STEPS = 4, 32, 2048, 10
BARRIER = 0
# Opcode of kernels/gfx1201/races.s -> bytes accessed, whether it writes, alignment.
ACCESSES = {
    1: (1, False, 1),
    2: (4, False, 4),
    3: (8, False, 8),
    4: (16, False, 16),
    5: (2, True, 2),
    6: (4, True, 4),
    7: (16, True, 16),
    8: (8, False, 4),
}


@pytest.fixture(autouse=True)
def default_checks(hip: Hip) -> Iterator[None]:
    yield
    hip.call("flash_attn_rocm_emulator_set_checks", None, ctypes.c_ulonglong(0))


def random_program(draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Opcodes, and addresses [step, work-item]; mostly each wave stays in a part of its own between two barriers."""
    opcodes = draw.choice([BARRIER, *ACCESSES], STEPS, p=[0.2, *[0.1] * len(ACCESSES)])
    addresses = np.full((STEPS, WAVES, LANES), -1, np.int64)
    part_of = draw.permutation(WAVES)
    part_bytes = LDS_BYTES // WAVES
    for step, opcode in enumerate(opcodes):
        if opcode == BARRIER:
            part_of = draw.permutation(WAVES)
            continue
        size, writes, unit = ACCESSES[int(opcode)]
        for wave in range(WAVES):
            if draw.random() < 0.3:
                continue  # this wave does nothing here
            if draw.random() < 0.6:  # neighbouring lanes, in any order, all of them
                own = draw.permutation(LANES) * size % part_bytes
            else:
                own = draw.integers(0, (part_bytes - size) // unit + 1, LANES) * unit
            common = not writes and draw.random() < 0.1  # reads of what all may read
            addresses[step, wave] = own + (0 if common else part_of[wave] * part_bytes)
            if draw.random() < 0.3:
                addresses[step, wave, draw.random(LANES) < 0.5] = -1
            if draw.random() < 0.03:  # one lane strays
                addresses[step, wave, draw.integers(LANES)] = draw.integers(0, LDS_BYTES // 16) * 16
    return opcodes, addresses


def has_race(opcodes: np.ndarray, addresses: np.ndarray) -> bool:
    """Two waves touch a byte between the same barriers, and at least one of them writes."""
    read, written = (np.zeros((WAVES, LDS_BYTES), bool) for _ in range(2))
    for opcode, step in zip(opcodes, addresses, strict=True):
        if opcode == BARRIER:
            read[:], written[:] = False, False
            continue
        size, writes, _ = ACCESSES[int(opcode)]
        for wave in range(WAVES):
            for address in step[wave][step[wave] >= 0]:
                (written if writes else read)[wave, address : address + size] = True
        for wave in range(WAVES):
            others = [other for other in range(WAVES) if other != wave]
            if (written[wave] & (read[others].any(0) | written[others].any(0))).any():
                return True
    return False


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(hip: Hip, isa_kernels: Path, seed: int) -> None:
    draw = np.random.default_rng(seed)
    function = hip.kernel(isa_kernels / "gfx1201_races.co", "run_program")
    found = 0
    for number in range(25):
        opcodes, addresses = random_program(draw)
        expected = has_race(opcodes, addresses)
        hip.call("flash_attn_rocm_emulator_set_checks", b"races,order", ctypes.c_ulonglong(number))
        table, codes = hip.buffer(addresses.astype(np.uint32)), hip.buffer(opcodes.astype(np.uint32))
        arguments = struct.pack("<QQI", table.address, codes.address, STEPS).ljust(32, b"\0")
        try:
            hip.launch(function, arguments, block=(WAVES * LANES, 1, 1))
            raced = False
        except HipError as error:
            assert error.code == LAUNCH_FAILURE
            assert "LDS race: this " in error.fault
            raced = True
        finally:
            table.free()
            codes.free()
        assert raced == expected, f"program {number}: {opcodes}"
        found += raced
    assert 0 < found < 25  # programs of both kinds
