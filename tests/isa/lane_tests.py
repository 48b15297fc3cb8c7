"""Runs one-instruction test kernels over many operands: special values crossed with each other, then random ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.isa.hip_runtime import Hip, pointers

LANES = 32
RANDOM_GROUPS = 24

F32_SPECIALS = np.array(
    [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        1.5,
        2.5,
        -2.5,
        3.4028235e38,
        -3.4028235e38,
        1.1754944e-38,
        1e-45,
        -1e-45,
        5.9e-39,
        np.inf,
        -np.inf,
        np.nan,
        0.49999997,
        8388609.0,
        65504.0,
        65520.0,
        6e-8,
        2147483648.0,
        -2147483648.0,
        4294967296.0,
        127.5,
        -126.5,
    ],
    np.float32,
).view(np.uint32)
SNAN = np.array([0x7F800001], np.uint32)
U32_SPECIALS = np.array(
    [
        0,
        1,
        2,
        31,
        32,
        33,
        0x7F,
        0x80,
        0xFF,
        0x7FFF,
        0x8000,
        0xFFFF,
        0x10000,
        0x7FFFFF,
        0x800000,
        0xFFFFFF,
        0x7FFFFFFF,
        0x80000000,
        0x80000001,
        0xFFFFFFFE,
        0xFFFFFFFF,
        0x0C0D0E0B,
        0x04050607,
        0x08090A0B,
    ],
    np.uint32,
)
F64_SPECIALS = np.array(
    [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.1,
        2.5,
        1.7976931348623157e308,
        -1e308,
        2.2250738585072014e-308,
        5e-324,
        -5e-324,
        np.inf,
        -np.inf,
        np.nan,
        2147483647.5,
        -2147483649.0,
        4294967296.0,
        1e39,
        1e-46,
        16777217.0,
    ],
    np.float64,
).view(np.uint64)
U64_SPECIALS = np.array(
    [0, 1, 63, 64, 0xFFFFFFFF, 0x100000000, 0x7FFFFFFFFFFFFFFF, 0x8000000000000000, 0xFFFFFFFFFFFFFFFF], np.uint64
)


def specials(kind: str) -> np.ndarray:
    """Bit patterns of the special values of a type."""
    return {"f32": F32_SPECIALS, "f64": F64_SPECIALS, "u64": U64_SPECIALS, "s64": U64_SPECIALS}.get(kind, U32_SPECIALS)


def random_bits(kind: str, count: int, generator: np.random.Generator) -> np.ndarray:
    """Random bit patterns: for floats half of them ordinary numbers, half any bits."""
    if kind in ("u64", "s64"):
        return generator.integers(0, 2**64, count, np.uint64)
    if kind == "f64":
        ordinary = (generator.standard_normal(count) * 10.0 ** generator.integers(-5, 6, count)).view(np.uint64)
        return np.where(generator.random(count) < 0.5, ordinary, generator.integers(0, 2**64, count, np.uint64))
    anything = generator.integers(0, 2**32, count, np.uint32)
    if kind == "f32":
        ordinary = (
            (generator.standard_normal(count) * 10.0 ** generator.integers(-5, 6, count))
            .astype(np.float32)
            .view(np.uint32)
        )
        return np.where(generator.random(count) < 0.5, ordinary, anything)
    small = generator.integers(0, 40, count, np.uint32)
    return np.where(generator.random(count) < 0.3, small, anything)


def operands(kinds: list[str], seed: int = 1) -> list[np.ndarray]:
    """Arrays of equal length, a multiple of 32: every pair of specials of the first two operands, then random bits."""
    generator = np.random.default_rng(seed)
    first = specials(kinds[0])
    if len(kinds) == 1:
        columns = [first]
    else:
        second = specials(kinds[1])
        columns = [np.repeat(first, len(second)), np.tile(second, len(first))]
        for kind in kinds[2:]:
            columns.append(generator.choice(specials(kind), len(columns[0])))
    total = (len(columns[0]) + LANES - 1) // LANES * LANES + RANDOM_GROUPS * LANES
    return [
        np.concatenate([column, random_bits(kind, total - len(column), generator)])
        for column, kind in zip(columns, kinds, strict=True)
    ]


def run_lanes(hip: Hip, code_object: Path, kernel: str, inputs: list[np.ndarray], result_bits: int) -> np.ndarray:
    """Raw results, one per element of the inputs."""
    count = len(inputs[0])
    result = hip.buffer(np.zeros(count, np.uint32 if result_bits == 32 else np.uint64))
    buffers = [hip.buffer(data) for data in inputs]
    arguments = pointers(result, *buffers).ljust(32, b"\0")
    hip.launch(hip.kernel(code_object, kernel), arguments, (count // LANES, 1, 1), (LANES, 1, 1))
    values = result.read()
    for buffer in [result, *buffers]:
        buffer.free()
    return values


def typed(raw: np.ndarray, kind: str) -> np.ndarray:
    """Bits as a numpy array of the operand's type."""
    types = {"f32": np.float32, "f64": np.float64, "u32": np.uint32, "s32": np.int32, "u64": np.uint64, "s64": np.int64}
    return raw.view(types[kind])


def assert_same(kernel: str, raw: np.ndarray, expected: np.ndarray, inputs: list[np.ndarray], ulps: int = 0) -> None:
    """Compares results by bits; any NaN equals any NaN; with `ulps`, finite floats may differ by so many steps."""
    got = raw.view(expected.dtype)
    same = got.view(raw.dtype) == expected.view(raw.dtype)
    if expected.dtype.kind == "f":
        same |= np.isnan(got) & np.isnan(expected)
        if ulps:
            step = np.abs(raw.astype(np.int64) - expected.view(raw.dtype).astype(np.int64))
            same |= np.isfinite(got) & np.isfinite(expected) & (step <= ulps)
    if same.all():
        return
    where = np.flatnonzero(~same)
    lines = [
        f"  operands {[hex(int(column[i])) for column in inputs]}: got {got[i]!r} ({int(raw[i]):#x}), "
        f"expected {expected[i]!r} ({int(expected.view(raw.dtype)[i]):#x})"
        for i in where[:5]
    ]
    raise AssertionError(f"{kernel}: {len(where)} of {len(raw)} results differ\n" + "\n".join(lines))
