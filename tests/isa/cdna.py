"""Runs the one-instruction kernels of tests/isa/kernels/cdna: 64 lanes with 16 bytes each in and out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from tests.isa.conftest import DEVICES
from tests.isa.hip_runtime import Hip, pointers

LANES = 64
OLD = 0x5A5A5A5A  # what destination registers hold before
GPUS = ("gfx90a", "gfx942", "gfx950")
GENERATION = {"gfx90a": 2, "gfx942": 3, "gfx950": 4}
Words = np.ndarray


@contextmanager
def on_device(hip: Hip, gfx: str) -> Iterator[None]:
    hip.call("hipSetDevice", DEVICES.index(gfx))
    try:
        yield
    finally:
        hip.call("hipSetDevice", 0)


def input_words(seed: int = 3) -> Words:
    """64 lanes of 4 dwords, with bytes and halves of either sign."""
    return np.random.default_rng(seed).integers(0, 2**32, (LANES, 4), np.uint32)


def old_words() -> Words:
    return np.full((LANES, 4), OLD, np.uint32)


def run(
    hip: Hip,
    code: Path,
    kernel: str,
    data: Words,
    old: int = 0,
    extra: bytes = b"",
    memory: Words | None = None,
    waves: int = 1,
) -> tuple[Words, Words]:
    """Output and, where an array of it is given, the memory of pointer 2 afterwards."""
    gfx = code.name.split("_")[0]
    with on_device(hip, gfx):
        buffers = [hip.buffer(np.full((LANES * waves, 4), old, np.uint32)), hip.buffer(data)]
        if memory is not None:
            buffers.append(hip.buffer(memory))
        arguments = (pointers(*buffers) + extra).ljust(32, b"\0")
        hip.launch(hip.kernel(code, kernel), arguments, block=(LANES * waves, 1, 1))
        result = buffers[0].read()
        changed = buffers[-1].read()
        for buffer in buffers:
            buffer.free()
    return result, changed


def sign_extend(values: Words, bits: int) -> Words:
    return ((values.astype(np.int64) << (64 - bits)) >> (64 - bits)).astype(np.uint32)


def loaded(data: Words, bits: int, fill: str) -> Words:
    """Four destination registers after a load from each lane's 16 bytes; fill: zero, sign, low or high half."""
    result = old_words()
    if bits >= 32:
        result[:, : bits // 32] = data[:, : bits // 32]
        return result
    value = data[:, 0] & np.uint32((1 << bits) - 1)
    result[:, 0] = {
        "zero": value,
        "sign": sign_extend(value, bits),
        "low": value | np.uint32(OLD & 0xFFFF0000),
        "high": value << np.uint32(16) | np.uint32(OLD & 0xFFFF),
    }[fill]
    return result


def stored(data: Words, bits: int, fill: str, old: int) -> Words:
    """Each lane's 16 bytes after a store of the first `bits` of its data (high: of its high half)."""
    result = np.full((LANES, 4), old, np.uint32)
    if bits >= 32:
        result[:, : bits // 32] = data[:, : bits // 32]
        return result
    mask = np.uint32((1 << bits) - 1)
    value = data[:, 0] >> np.uint32(16 if fill == "high" else 0)
    result[:, 0] = (value & mask) | (np.uint32(old) & ~mask)
    return result
