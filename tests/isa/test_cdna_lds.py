"""gfx9: LDS instructions, each alone against numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.isa.cdna import GENERATION, GPUS, LANES, OLD, input_words, loaded, old_words, run, stored
from tests.isa.hip_runtime import Hip
from tests.isa.test_cdna_memory import add, refused, small_floats

READS = {
    "b32": (32, "zero"),
    "b64": (64, "zero"),
    "b96": (96, "zero"),
    "b128": (128, "zero"),
    "u8": (8, "zero"),
    "i8": (8, "sign"),
    "u16": (16, "zero"),
    "i16": (16, "sign"),
    "u16_d16": (16, "low"),
    "u16_d16_hi": (16, "high"),
    "u8_d16": (8, "low"),
    "u8_d16_hi": (8, "high"),
}
WRITES = {
    "b32": (32, "low"),
    "b64": (64, "low"),
    "b96": (96, "low"),
    "b128": (128, "low"),
    "b8": (8, "low"),
    "b16": (16, "low"),
    "b16_d16_hi": (16, "high"),
    "b8_d16_hi": (8, "high"),
}
ATOMICS = ("add_u32", "min_i32", "max_i32", "min_u32", "max_u32", "and_b32", "or_b32", "xor_b32", "add_f32")
PAIRS = ("_b32", "_b64", "st64_b32", "st64_b64")
PACKED_ATOMICS = ("pk_add_f16", "pk_add_bf16")  # not on gfx90a


@pytest.fixture(params=GPUS)
def code(isa_kernels: Path, request: pytest.FixtureRequest) -> Path:
    return isa_kernels / f"{request.param}_lds.co"


def atomics_of(gfx: str) -> tuple[str, ...]:
    """Those that the GPU has."""
    return ATOMICS if GENERATION[gfx] < 3 else (*ATOMICS, *PACKED_ATOMICS)


@pytest.mark.parametrize("name", READS)
def test_reads(hip: Hip, code: Path, name: str) -> None:
    data = input_words()
    np.testing.assert_array_equal(run(hip, code, f"ds_read_{name}", data)[0], loaded(data, *READS[name]))


@pytest.mark.parametrize("name", WRITES)
def test_writes(hip: Hip, code: Path, name: str) -> None:
    data = input_words()
    np.testing.assert_array_equal(run(hip, code, f"ds_write_{name}", data)[0], stored(data, *WRITES[name], OLD))


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("direction", ["read", "write"])
def test_two_elements(hip: Hip, code: Path, name: str, direction: str) -> None:
    """The first result is from the first offset. In the strided forms lanes overlap: the highest lane's stays."""
    data = input_words()
    got = run(hip, code, f"ds_{direction}2{name}", data)[0]
    words, elements = (2 if name.endswith("64") else 1), (64 if "st64" in name else 1)
    memory: dict[int, np.ndarray] = {}
    for part, offset in ((0, 3), (1, 1)):  # the order of the two stores
        for lane in range(LANES):
            memory[8 * lane + offset * elements] = data[lane, part * words : (part + 1) * words]
    expected = old_words()
    for lane in range(LANES):
        for part, offset in ((0, 3), (1, 1)):
            expected[lane, part * words : (part + 1) * words] = memory[8 * lane + offset * elements]
    np.testing.assert_array_equal(got, expected)


def combine(name: str, memory: np.ndarray, value: np.ndarray) -> np.ndarray:
    operation, kind = name.rsplit("_", 1)
    if operation == "pk_add" or kind == "f32":
        return add(name, memory, value)
    signed = (memory.view(np.int32), value.view(np.int32)) if kind == "i32" else (memory, value)
    function = {
        "add": np.add,
        "min": np.minimum,
        "max": np.maximum,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }[operation]
    return np.asarray(function(*signed)).view(np.uint32)


def returning(name: str) -> str:
    base, kind = name.rsplit("_", 1)
    return f"ds_{base}_rtn_{kind}"


@pytest.mark.parametrize(("gfx", "name"), [(gfx, name) for gfx in GPUS for name in atomics_of(gfx)])
def test_atomics(hip: Hip, isa_kernels: Path, gfx: str, name: str) -> None:
    """Groups of four lanes change one dword, the lowest first."""
    code = isa_kernels / f"{gfx}_lds.co"
    data = small_floats(name, 5)
    memory, old = data[:, 0].copy(), np.zeros(LANES, np.uint32)
    for lane in range(LANES):
        place = slice(lane & ~3, (lane & ~3) + 1)
        old[lane] = memory[place][0]
        memory[place] = combine(name, memory[place].copy(), data[lane, 1:2].copy())
    for kernel, returned in ((f"ds_{name}", np.uint32(OLD)), (returning(name), old)):
        expected = old_words()
        expected[:, 0], expected[:, 1] = returned, memory
        np.testing.assert_array_equal(run(hip, code, kernel, data)[0], expected, kernel)


def active(data: np.ndarray) -> np.ndarray:
    """What inactive lanes 0 and 5 provide is 0."""
    result = data[:, 0].copy()
    result[[0, 5]] = 0
    return result


def assert_lanes(got: np.ndarray, expected: np.ndarray) -> None:
    wanted = old_words()
    wanted[:, 0] = expected
    wanted[[0, 5], 0] = OLD
    np.testing.assert_array_equal(got, wanted)


def test_bpermute(hip: Hip, code: Path) -> None:
    data = input_words()
    sources = (data[:, 1] + np.uint32(2)) % 64  # the offset of 8 bytes is two lanes
    assert_lanes(run(hip, code, "ds_bpermute_b32", data)[0], active(data)[sources])


def test_permute(hip: Hip, code: Path) -> None:
    """The highest lane that names a lane wins; lanes that none names get 0."""
    data = input_words()
    expected = np.zeros(LANES, np.uint32)
    for lane in range(LANES):
        if lane not in (0, 5):
            expected[(int(data[lane, 1]) + 2) % 64] = data[lane, 0]
    assert_lanes(run(hip, code, "ds_permute_b32", data)[0], expected)


def test_swizzle(hip: Hip, code: Path) -> None:
    """Lanes of each four in reverse; and within 32 lanes, lane ((i & 0x15) | 2) ^ 9."""
    data, lanes = input_words(), np.arange(LANES)
    assert_lanes(run(hip, code, "swizzle_quad", data)[0], active(data)[lanes ^ 3])
    sources = (lanes & 32) | (((lanes & 0x15) | 0x2) ^ 0x9)
    assert_lanes(run(hip, code, "swizzle_mask", data)[0], active(data)[sources])


def test_transposing_read(hip: Hip, isa_kernels: Path) -> None:
    """Four lanes give a line of 16 halves; lane i of 16 gets column i of four lines."""
    data = input_words()
    got = run(hip, isa_kernels / "gfx950_lds.co", "ds_read_b64_tr_b16", data)[0]
    halves = np.ascontiguousarray(data[:, :2]).view(np.uint16).reshape(4, 4, 16)  # row of lanes, line, column
    expected = old_words()
    expected[:, :2] = np.ascontiguousarray(halves.transpose(0, 2, 1)).view(np.uint32).reshape(LANES, 2)
    np.testing.assert_array_equal(got, expected)


def test_transposing_read_with_inactive_lanes(hip: Hip, isa_kernels: Path) -> None:
    fault = "a transposing load with inactive lanes is not documented"
    refused(hip, isa_kernels / "gfx950_lds.co", "transposing_read_of_some_lanes", fault)


def test_barrier(hip: Hip, code: Path) -> None:
    """Each of two waves reads what the other wrote before the barrier."""
    data = np.random.default_rng(9).integers(0, 2**32, (2 * LANES, 4), np.uint32)
    got = run(hip, code, "barrier", data, waves=2)[0]
    np.testing.assert_array_equal(got[:, 0], np.roll(data[:, 0], LANES))


def kernels(gfx: str) -> set[str]:
    """What these tests launch, for test_cdna_evidence.py."""
    atomics = atomics_of(gfx)
    names = {f"ds_read_{name}" for name in READS} | {f"ds_write_{name}" for name in WRITES}
    names |= {f"ds_{direction}2{name}" for direction in ("read", "write") for name in PAIRS}
    names |= {f"ds_{name}" for name in atomics} | {returning(name) for name in atomics}
    names |= {"ds_bpermute_b32", "ds_permute_b32", "swizzle_quad", "swizzle_mask", "barrier"}
    return names | ({"ds_read_b64_tr_b16"} if gfx == "gfx950" else set())
