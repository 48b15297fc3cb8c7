"""LDS loads and stores of every width, cross-lane moves through it, and barriers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.isa.hip_runtime import Hip, pointers
from tests.isa.test_memory import LANES, OLD, UNTOUCHED, expected_load, expected_store, input_words, run


@pytest.fixture
def code(isa_kernels: Path, rdna: str) -> Path:
    return isa_kernels / f"{rdna}_lds.co"


LOADS = {
    "b32": ("b32", 1),
    "u8": ("u8", 1),
    "i8": ("i8", 1),
    "u16": ("u16", 1),
    "i16": ("i16", 1),
    "u16_d16": ("d16_b16", 1),
    "u16_d16_hi": ("d16_hi_b16", 1),
    "u8_d16": ("d16_u8", 1),
    "u8_d16_hi": ("d16_hi_u8", 1),
    "b64": ("b64", 2),
    "b96": ("b96", 0),
    "b128": ("b128", 0),
}


@pytest.mark.parametrize("name", LOADS)
def test_load(hip: Hip, code: Path, name: str) -> None:
    """The same fills as global loads, from a constant offset of so many dwords."""
    same_as, dword = LOADS[name]
    data = input_words()
    np.testing.assert_array_equal(
        run(hip, code, f"ds_load_{name}", data), expected_load(same_as, np.roll(data, -dword, axis=1))
    )


@pytest.mark.parametrize(("name", "columns"), [("2addr_b32", [3, 1]), ("2addr_b64", [2, 3, 0, 1])])
def test_load_two_addresses(hip: Hip, code: Path, name: str, columns: list[int]) -> None:
    data = input_words()
    expected = np.full((LANES, 4), OLD, np.uint32)
    expected[:, : len(columns)] = data[:, columns]
    np.testing.assert_array_equal(run(hip, code, f"ds_load_{name}", data), expected)


@pytest.mark.parametrize("bits", [32, 64])
def test_load_stride_64(hip: Hip, code: Path, bits: int) -> None:
    """Offsets count 64 elements: 256 bytes of dwords or 512 of qwords, that is 16 or 32 lanes further."""
    data = input_words()
    memory = np.concatenate([data.reshape(-1), np.full(128, 0x7FE17FE1, np.uint32)])  # LDS behind the data is poison
    starts = (0, 64) if bits == 32 else (128, 0)
    words = bits // 32
    expected = np.full((LANES, 4), OLD, np.uint32)
    for lane in range(LANES):
        for part, start in enumerate(starts):
            expected[lane, words * part : words * (part + 1)] = memory[4 * lane + start : 4 * lane + start + words]
    np.testing.assert_array_equal(run(hip, code, f"ds_load_2addr_stride64_b{bits}", data), expected)


STORES = {
    "b8": ("b8", 1),
    "b16": ("b16", 1),
    "b32": ("b32", 1),
    "b8_d16_hi": ("d16_hi_b8", 1),
    "b16_d16_hi": ("d16_hi_b16", 1),
    "b64": ("b64", 2),
    "b96": ("b96", 0),
    "b128": ("b128", 0),
}


@pytest.mark.parametrize("name", STORES)
def test_store(hip: Hip, code: Path, name: str) -> None:
    same_as, dword = STORES[name]
    data = input_words()
    expected = np.roll(expected_store(same_as, data, UNTOUCHED), dword, axis=1)
    np.testing.assert_array_equal(run(hip, code, f"ds_store_{name}", data), expected)


def test_store_two_addresses(hip: Hip, code: Path) -> None:
    data = input_words()
    expected = np.full((LANES, 4), UNTOUCHED, np.uint32)
    expected[:, 3], expected[:, 1] = data[:, 0], data[:, 1]
    np.testing.assert_array_equal(run(hip, code, "ds_store_2addr_b32", data), expected)
    np.testing.assert_array_equal(run(hip, code, "ds_store_2addr_b64", data), data[:, [2, 3, 0, 1]])


@pytest.mark.parametrize("bits", [32, 64])
def test_store_stride_64(hip: Hip, code: Path, bits: int) -> None:
    """Lane i stores its first element at its own place and its second 64 elements further: 16 or 32 lanes."""
    data, words = input_words(), bits // 32
    expected = np.full((LANES, 4), UNTOUCHED, np.uint32)
    expected[:, :words] = data[:, :words]
    further = 16 * words
    expected[further:, :words] = data[: LANES - further, words : 2 * words]
    np.testing.assert_array_equal(run(hip, code, f"ds_store_2addr_stride64_b{bits}", data), expected)


@pytest.mark.parametrize("name", ["bpermute", "permute"])
def test_permute(hip: Hip, code: Path, name: str) -> None:
    """Lanes 0-7 are inactive: they give 0 as sources and keep their value as destinations. The offset adds a lane."""
    data = input_words()
    data[:, 0] = np.random.default_rng(5).permutation(LANES).astype(np.uint32) * 4 + 128
    lanes = (data[:, 0] // 4 + 1) % 32
    values = np.where(np.arange(LANES) < 8, 0, data[:, 1])
    expected = np.full(LANES, OLD, np.uint32)
    if name == "bpermute":
        expected[8:] = values[lanes][8:]
    else:
        moved = np.zeros(LANES, np.uint32)
        moved[lanes[8:]] = data[8:, 1]
        expected[8:] = moved[8:]
    np.testing.assert_array_equal(run(hip, code, f"ds_{name}", data)[:, 0], expected)


def test_barrier_orders_stores_before_loads(hip: Hip, code: Path) -> None:
    """Three rounds of passing a value to the previous wave: work-item i ends with the value of i + 96."""
    result = hip.buffer(np.zeros(128, np.uint32))
    hip.launch(hip.kernel(code, "barrier_exchange"), pointers(result).ljust(32, b"\0"), block=(128, 1, 1))
    got = result.read()
    result.free()
    np.testing.assert_array_equal(got, 3 * ((np.arange(128) + 96) % 128))
