"""Exec as the ordinary destination of an instruction: vector instructions behind it must see the new mask."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from tests.isa.hip_runtime import Hip, pointers

MASK = 0x80F1_5A3C
EXPECTED = {
    "by_readfirstlane": MASK,
    "by_readlane": MASK,
    "by_mov": MASK,
    "by_mov_b64": MASK,
    "by_not": ~MASK & 0xFFFF_FFFF,
    "by_cmov": MASK,
    "by_movk": 0x7531,
    "by_bitset": 1 << 7,
    "by_select": MASK,
    "by_and": MASK,
    "by_add": MASK + 1,
    "by_compare": 0x1FF,
    "by_saveexec": MASK,
}


@pytest.mark.parametrize("kernel", EXPECTED)
def test_exec_as_destination(hip: Hip, isa_kernels: Path, kernel: str) -> None:
    result = hip.buffer(np.zeros(32, np.uint32))
    arguments = pointers(result) + struct.pack("<I", MASK)
    hip.launch(hip.kernel(isa_kernels / "gfx1201_exec.co", kernel), arguments.ljust(32, b"\0"))
    mask = sum(int(active) << lane for lane, active in enumerate(result.read()))
    result.free()
    assert f"{mask:#x}" == f"{EXPECTED[kernel]:#x}"
