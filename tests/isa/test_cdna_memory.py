"""gfx9: loads, stores and atomics of every width through each kind of memory, each instruction alone against numpy."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from tests.isa.cdna import GENERATION, GPUS, LANES, OLD, Words, input_words, loaded, old_words, run, stored
from tests.isa.hip_runtime import LAUNCH_FAILURE, Hip, HipError

UNTOUCHED = 0x33333333
# Name after the kind of memory: bits, and how a narrow value fills the register.
LOADS = {
    "dword": (32, "zero"),
    "dwordx2": (64, "zero"),
    "dwordx3": (96, "zero"),
    "dwordx4": (128, "zero"),
    "ubyte": (8, "zero"),
    "sbyte": (8, "sign"),
    "ushort": (16, "zero"),
    "sshort": (16, "sign"),
    "short_d16": (16, "low"),
    "short_d16_hi": (16, "high"),
    "ubyte_d16": (8, "low"),
    "ubyte_d16_hi": (8, "high"),
}
STORES = {
    "dword": (32, "low"),
    "dwordx2": (64, "low"),
    "dwordx3": (96, "low"),
    "dwordx4": (128, "low"),
    "byte": (8, "low"),
    "short": (16, "low"),
    "short_d16_hi": (16, "high"),
    "byte_d16_hi": (8, "high"),
}
KINDS = {"load": LOADS, "store": STORES}
SCALAR_LOADS = [("dword", 1), ("dwordx2", 2), ("dwordx4", 4), ("dwordx8", 8), ("dwordx16", 16)]
ATOMICS = ("add", "add_f32", "add_f64", "pk_add_f16", "pk_add_bf16")


def spaces(gfx: str) -> list[str]:
    """gfx90a has scratch through a descriptor only."""
    return ["global", "flat", "buffer", *(["scratch"] if GENERATION[gfx] >= 3 else [])]


def atomics_of(gfx: str) -> list[str]:
    return [name for name in ATOMICS if name != "pk_add_bf16" or GENERATION[gfx] >= 4]


def loads_into_lds(gfx: str) -> list[str]:
    """Kernels that load a dword, or four, a lane."""
    return ["buffer_to_lds", *(["buffer_to_lds_x4"] if GENERATION[gfx] >= 4 else [])]


@pytest.fixture(params=GPUS)
def code(isa_kernels: Path, request: pytest.FixtureRequest) -> Path:
    return isa_kernels / f"{request.param}_memory.co"


def gpu(code: Path) -> str:
    return code.name.split("_")[0]


@pytest.mark.parametrize("name", LOADS)
def test_loads(hip: Hip, code: Path, name: str) -> None:
    data = input_words()
    kernels = [f"{space}_load_{name}" for space in spaces(gpu(code))] + [f"global_load_{name}_pair"]
    for kernel in kernels:
        np.testing.assert_array_equal(run(hip, code, kernel, data)[0], loaded(data, *LOADS[name]), kernel)


@pytest.mark.parametrize("name", STORES)
def test_stores(hip: Hip, code: Path, name: str) -> None:
    data = input_words()
    for space in spaces(gpu(code)):
        old = OLD if space == "scratch" else UNTOUCHED
        got = run(hip, code, f"{space}_store_{name}", data, UNTOUCHED)[0]
        np.testing.assert_array_equal(got, stored(data, *STORES[name], old), f"{space}_store_{name}")


@pytest.mark.parametrize("stride", [0, 16])
def test_range_in_bytes(hip: Hip, code: Path, stride: int) -> None:
    """Without an index, whatever the stride: each dword that ends within num_records is loaded, others give 0."""
    data, records = input_words(), 500
    got = run(hip, code, "range_offen", data, extra=struct.pack("<II", records, stride))[0]
    expected = old_words()
    offsets = 16 * np.arange(LANES)
    for word in range(2):
        expected[:, word] = np.where(offsets + 4 * word + 4 <= records, data[:, word], 0)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("offset", [0, 8])
def test_range_by_index(hip: Hip, code: Path, offset: int) -> None:
    """With an index and a stride num_records counts elements; the offset within one does not matter."""
    data = input_words()
    kernel = "range_both" if offset else "range_idxen"
    got = run(hip, code, kernel, data, extra=struct.pack("<II", 33, 16))[0]
    expected = old_words()
    if offset:  # v2, the index, is the lane's number and v3, the offset, is 8
        expected[:, :2] = np.where(np.arange(LANES)[:, None] < 33, data[:, 2:], 0)
    else:
        expected[:, :2] = np.where(np.arange(LANES)[:, None] < 33, data[:, :2], 0)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(("gfx", "kernel"), [(gfx, kernel) for gfx in GPUS for kernel in loads_into_lds(gfx)])
def test_loads_into_lds(hip: Hip, isa_kernels: Path, gfx: str, kernel: str) -> None:
    """Active lanes' dwords go behind M0 and the offset; what is out of range gives 0; others leave LDS alone."""
    data = input_words()
    got = run(hip, isa_kernels / f"{gfx}_memory.co", kernel, data, extra=struct.pack("<II", 800, 0))[0]
    expected = old_words()
    lanes = np.arange(LANES)
    expected[8:, 0] = np.where(16 * lanes[8:] + 4 <= 800, data[8:, 0], 0)
    np.testing.assert_array_equal(got, expected)


def add(kind: str, memory: Words, value: Words) -> Words:
    """Sum of two elements given as one or two dwords."""
    if kind == "add":
        return memory + value
    if kind == "add_f64":
        return (memory.view(np.float64) + value.view(np.float64)).view(np.uint32)
    if kind == "add_f32":
        return (memory.view(np.float32) + value.view(np.float32)).view(np.uint32)
    if kind == "pk_add_f16":
        return (memory.view(np.float16) + value.view(np.float16)).view(np.uint32)
    halves = [(word.view(np.uint16).astype(np.uint32) << 16).view(np.float32) for word in (memory, value)]
    total = (halves[0] + halves[1]).astype(np.float32).view(np.uint32)
    return ((total + 0x7FFF + (total >> 16 & 1)) >> 16).astype(np.uint16).view(np.uint32)


def small_floats(kind: str, seed: int) -> Words:
    """16 bytes a lane of ordinary numbers of the type."""
    values = np.random.default_rng(seed).standard_normal((LANES, 8))
    if kind == "add_f64":
        return np.ascontiguousarray(values[:, :2]).view(np.uint32)
    if kind == "add_f32":
        return values[:, :4].astype(np.float32).view(np.uint32)
    if kind == "pk_add_f16":
        return values.astype(np.float16).view(np.uint32)
    if kind == "pk_add_bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint32)
    return input_words(seed)


def expected_buffer(old: Words, data: Words, words: int) -> Words:
    """The kernel adds v[8:9] and returns into them where the instruction says so; v[12:13] hold a copy of the data."""
    result = old_words()
    result[:, :2] = data[:, :2]
    result[:, :words] = old[:, :words]
    return result


@pytest.mark.parametrize(("gfx", "name"), [(gfx, name) for gfx in GPUS for name in atomics_of(gfx)])
def test_atomics(hip: Hip, isa_kernels: Path, gfx: str, name: str) -> None:
    """Groups of four lanes add to one place, the lowest first; a buffer's range ends after 48 lanes."""
    code = isa_kernels / f"{gfx}_memory.co"
    words = 2 if name == "add_f64" else 1
    data, memory = small_floats(name, 1), small_floats(name, 2)
    for space in ("global", "buffer"):
        changed, old = memory.copy(), old_words()
        for lane in range(LANES):
            place = lane & ~3
            inside = space == "global" or lane < 48
            old[lane, :words] = changed[place, :words] if inside else 0
            if inside:
                changed[place, :words] = add(name, changed[place, :words].copy(), data[lane, :words].copy())
        for suffix in ("", "_rtn"):
            got, now = run(hip, code, f"{space}_atomic_{name}{suffix}", data, memory=memory)
            np.testing.assert_array_equal(now, changed, f"{space} {suffix}")
            if suffix:
                np.testing.assert_array_equal(got, old if space == "global" else expected_buffer(old, data, words))


@pytest.mark.parametrize(("name", "words"), SCALAR_LOADS)
def test_scalar_loads(hip: Hip, code: Path, name: str, words: int) -> None:
    data = input_words()
    got = run(hip, code, f"s_load_{name}", data)[0].reshape(-1)[:16]
    expected = np.full(16, OLD, np.uint32)
    expected[:words] = data.reshape(-1)[1 : 1 + words]
    np.testing.assert_array_equal(got, expected)


def test_scratch_through_a_descriptor(hip: Hip, isa_kernels: Path) -> None:
    """gfx90a: offsets of a lane, and scalar ones that count the bytes of all 64; each lane has memory of its own."""
    data = input_words()
    got = run(hip, isa_kernels / "gfx90a_scratch.co", "scratch_descriptor", data)[0]
    memory = data.copy()  # of a lane, from its 16th byte on
    raw = memory.view(np.uint8)
    raw[:, 7] = raw[:, 0]  # byte 23
    np.testing.assert_array_equal(got[:, 0], memory[:, 0])
    np.testing.assert_array_equal(got[:, 1], memory.view(np.uint16)[:, 5])
    np.testing.assert_array_equal(got[:, 2:], memory[:, 1:3])


def refused(hip: Hip, code: Path, kernel: str, fault: str) -> None:
    with pytest.raises(HipError, match=fault) as caught:
        run(hip, code, kernel, input_words())
    assert caught.value.code == LAUNCH_FAILURE


def test_scalar_offset_into_scratch(hip: Hip, isa_kernels: Path) -> None:
    fault = "a scalar offset that is not a multiple of a dword of all lanes"
    refused(hip, isa_kernels / "gfx90a_scratch.co", "scratch_scalar_offset", fault)


@pytest.mark.parametrize("gfx", GPUS)
@pytest.mark.parametrize("descriptor", ["swizzled", "add_tid"])
@pytest.mark.parametrize("access", ["load", "store", "load_lds", "atomic"])
def test_descriptors_that_are_refused(hip: Hip, isa_kernels: Path, gfx: str, descriptor: str, access: str) -> None:
    fault = "swizzled buffers and add_tid are not emulated"
    refused(hip, isa_kernels / f"{gfx}_memory.co", f"{descriptor}_{access}", fault)


def kernels(gfx: str) -> set[str]:
    """What these tests launch, for test_cdna_evidence.py."""
    names = {f"{space}_{kind}_{name}" for space in spaces(gfx) for kind, rows in KINDS.items() for name in rows}
    atomics = atomics_of(gfx)
    names |= {f"{s}_atomic_{name}{end}" for s in ("global", "buffer") for name in atomics for end in ("", "_rtn")}
    return names | {f"s_load_{name}" for name, _ in SCALAR_LOADS} | set(loads_into_lds(gfx))
