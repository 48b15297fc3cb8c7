"""Loads and stores of every width through global, buffer, scratch and scalar memory, and the buffer range checks."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from tests.isa.conftest import GFX, RDNA
from tests.isa.hip_runtime import Hip, pointers

LANES = 32
OLD = 0x5A5A5A5A  # what the loads' destination registers hold before
UNTOUCHED = 0x33333333
Words = np.ndarray


def input_words(seed: int = 3) -> Words:
    """32 lanes of 4 dwords, with bytes and halves of either sign."""
    return np.random.default_rng(seed).integers(0, 2**32, (LANES, 4), np.uint32)


def run(hip: Hip, code_object: Path, kernel: str, data: Words, old: int = 0, extra: bytes = b"") -> Words:
    source, target = hip.buffer(data), hip.buffer(np.full((LANES, 4), old, np.uint32))
    hip.launch(hip.kernel(code_object, kernel), (pointers(target, source) + extra).ljust(32, b"\0"))
    result = target.read()
    source.free()
    target.free()
    return result


def sign_extend(values: Words, bits: int) -> Words:
    return ((values.astype(np.int64) << (64 - bits)) >> (64 - bits)).astype(np.uint32)


def expected_load(name: str, data: Words) -> Words:
    """The four destination registers after a load of `name` from each lane's 16 bytes."""
    result = np.full((LANES, 4), OLD, np.uint32)
    first = data[:, 0]
    half, byte = first & 0xFFFF, first & 0xFF
    narrow = {
        "u8": byte,
        "i8": sign_extend(byte, 8),
        "u16": half,
        "i16": sign_extend(half, 16),
        "d16_b16": half | (OLD & 0xFFFF0000),
        "d16_hi_b16": (half << 16) | (OLD & 0xFFFF),
        "d16_u8": byte | (OLD & 0xFFFF0000),
        "d16_hi_u8": (byte << 16) | (OLD & 0xFFFF),
    }
    if name in narrow:
        result[:, 0] = narrow[name]
    else:
        words = int(name[1:]) // 32
        result[:, :words] = data[:, :words]
    return result


def expected_store(name: str, data: Words, old: int) -> Words:
    result = np.full((LANES, 4), old, np.uint32)
    first = data[:, 0]
    narrow = {
        "b8": (first & 0xFF, 0xFF),
        "b16": (first & 0xFFFF, 0xFFFF),
        "d16_hi_b8": ((first >> 16) & 0xFF, 0xFF),
        "d16_hi_b16": (first >> 16, 0xFFFF),
    }
    if name in narrow:
        value, mask = narrow[name]
        result[:, 0] = value | (old & ~mask & 0xFFFFFFFF)
    else:
        words = int(name[1:]) // 32
        result[:, :words] = data[:, :words]
    return result


LOADS = ["b32", "b64", "b96", "b128", "u8", "i8", "u16", "i16", "d16_b16", "d16_hi_b16", "d16_u8", "d16_hi_u8"]
STORES = ["b8", "b16", "b32", "b64", "b96", "b128", "d16_hi_b8", "d16_hi_b16"]


@pytest.fixture
def code(isa_kernels: Path, rdna: str) -> Path:
    return isa_kernels / f"{rdna}_memory.co"


@pytest.mark.parametrize("space", ["global", "buffer", "flat", "scratch"])
@pytest.mark.parametrize("name", LOADS)
def test_load(hip: Hip, code: Path, space: str, name: str) -> None:
    data = input_words()
    np.testing.assert_array_equal(run(hip, code, f"{space}_load_{name}", data), expected_load(name, data))


@pytest.mark.parametrize("space", ["global", "buffer", "flat", "scratch"])
@pytest.mark.parametrize("name", STORES)
def test_store(hip: Hip, code: Path, space: str, name: str) -> None:
    data = input_words()
    got = run(hip, code, f"{space}_store_{name}", data, old=UNTOUCHED)
    np.testing.assert_array_equal(got, expected_store(name, data, UNTOUCHED))


@pytest.mark.parametrize("kernel", ["global_address_pair", "buffer_overlap"])
def test_address_forms(hip: Hip, code: Path, kernel: str) -> None:
    data = input_words()
    np.testing.assert_array_equal(run(hip, code, kernel, data), data)


def test_scratch_is_private_and_addressed_by_scalar(hip: Hip, code: Path) -> None:
    data = input_words()
    np.testing.assert_array_equal(run(hip, code, "scratch_scalar", data)[:, 1], data[:, 0])


@pytest.mark.parametrize("records", [0, 3, 4, 200, 399, 400, 512])
def test_raw_buffer_range_is_checked_per_dword(hip: Hip, code: Path, records: int) -> None:
    """Lane i loads 16 bytes at 12 * i + 12; dwords that do not lie wholly below `records` are 0."""
    data = input_words()
    flat = np.concatenate([data.reshape(-1), np.zeros(8, np.uint32)])
    got = run(hip, code, "buffer_partial", data, extra=struct.pack("<I", records))
    for lane in range(LANES):
        for word in range(4):
            offset = 12 * lane + 12 + 4 * word
            assert got[lane, word] == (flat[offset // 4] if offset + 4 <= records else 0), (lane, word)


@pytest.mark.parametrize("records", [32, 20, 0])
def test_buffer_atomic_add(hip: Hip, code: Path, records: int) -> None:
    """Lane i adds 1 + i / 2 to word i // 4; the words at `records` bytes and beyond are out of range."""
    numbers = np.random.default_rng(5).integers(-8, 8, (LANES, 4)).astype(np.float32)
    got = run(hip, code, "buffer_atomic_add_f32", numbers.view(np.uint32), extra=struct.pack("<I", records))
    expected = numbers.reshape(-1)[:LANES].copy()
    for lane in range(LANES):
        if 4 * (lane // 4) + 4 <= records:
            expected[lane // 4] += 1 + lane / 2
    np.testing.assert_array_equal(got[:, 0].copy().view(np.float32), expected)


@pytest.mark.parametrize(
    ("select", "name"), [(0, "structured"), (1, "index only"), (2, "empty buffers only"), (3, "raw")]
)
def test_structured_buffer(hip: Hip, code: Path, select: int, name: str) -> None:
    """Stride 12, 20 records: lane i loads 8 bytes at offset 4 and at offset 8 of record i."""
    data, records, stride = input_words(), 20, 12
    flat = data.reshape(-1)
    got = run(hip, code, "buffer_structured", data, extra=struct.pack("<II", records, 0x01004000 | select << 28))

    def in_range(index: int, offset: int, size: int) -> bool:
        return {
            0: index < records and offset + size <= stride,
            1: index < records,
            2: records != 0,
            3: offset + size <= records,
        }[select]

    for lane in range(LANES):
        for start, column in ((4, 0), (8, 2)):
            whole = in_range(lane, start, 8)
            for word in range(2):
                offset = start + 4 * word
                visible = whole or in_range(lane, offset, 4)
                assert got[lane, column + word] == (flat[(stride * lane + offset) // 4] if visible else 0), (
                    name,
                    lane,
                    offset,
                )


@pytest.mark.parametrize(
    ("rdna", "bits"), [(gpu, bits) for gpu in RDNA for bits in (32, 64, 128, 256, 512)] + [(GFX, 96)], indirect=["rdna"]
)
def test_scalar_load(hip: Hip, code: Path, bits: int) -> None:
    """Scalar offset 8 and constant offset 4: the load starts at dword 3."""
    data = input_words()
    got = run(hip, code, f"s_load_b{bits}", data).reshape(-1)
    words = bits // 32
    np.testing.assert_array_equal(got[:words], data.reshape(-1)[3 : 3 + words])


@pytest.mark.parametrize(
    ("rdna", "word"), [(GFX, word) for word in (0x12345678, 0x7F80FFFE, 0xFFFF7F80)], indirect=["rdna"]
)
def test_narrow_scalar_load(hip: Hip, code: Path, word: int) -> None:
    data = input_words()
    data[0, 3] = word
    first = np.full(LANES, word, np.uint32)
    half, byte = first & 0xFFFF, first & 0xFF
    expected = np.stack([byte, sign_extend(byte, 8), half, sign_extend(half, 16)], axis=1)
    np.testing.assert_array_equal(run(hip, code, "s_load_narrow", data), expected)
