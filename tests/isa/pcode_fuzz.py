"""Runs one fuzz kernel on the emulator and the instruction's pseudo-code on the same operands."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.isa.fuzz_rows import BITS, LITERAL16, LITERAL32, OP_SEL, OP_SEL_HI, Row
from tests.isa.hip_runtime import Hip, pointers
from tests.isa.pcode.evaluate import Compiler, Env
from tests.isa.pcode.syntax import PcodeError
from tests.isa.pcode.values import Value, make

SAMPLES = 384  # a multiple of both wave sizes
CROSSED = 12  # special values of the first two operands that meet each other
# Zeros, ones, infinities, NaNs of both kinds, denormals, the largest numbers, ties and limits of conversions.
FLOAT_BITS = {
    16: [
        0,
        0x8000,
        0x3C00,
        0xBC00,
        0x7C00,
        0xFC00,
        0x7E00,
        0x7D01,
        1,
        0x8001,
        0x3FF,
        0x7BFF,
        0x3800,
        0x3E00,
        0x4100,
        0xC100,
        0x400,
        0xFE01,
        0x6400,
        0x6401,
        0x7BFE,
        0x83FF,
        0x3555,
        0x5BF8,
    ],
    32: [
        0,
        1 << 31,
        0x3F800000,
        0xBF800000,
        0x7F800000,
        0xFF800000,
        0x7FC00000,
        0x7F800001,
        1,
        0x80000001,
        0x7FFFFF,
        0x7F7FFFFF,
        0x3F000000,
        0x3FC00000,
        0x40200000,
        0xC0200000,
        0x800000,
        0xFFC00001,
        0x4B000001,
        0x4B800001,
        0x4F000000,
        0xCF000000,
        0x4F800000,
        0x477FE000,
        0x477FF000,
        0x33800000,
        0x33000000,
        0x387FE000,
        0x3EFFFFFF,
        0x3F7FFFFF,
        0x4EFFFFFF,
        0xBF000000,
        0x42FF0000,
        0xC2FD0000,
        0x38801000,
        0x38803000,
        0x3F801000,
    ],
    64: [
        0,
        1 << 63,
        0x3FF << 52,
        0xBFF << 52,
        0x7FF << 52,
        0xFFF << 52,
        0x7FF8 << 48,
        (0x7FF << 52) + 1,
        1,
        (1 << 63) + 1,
        (1 << 52) - 1,
        0x7FEFFFFFFFFFFFFF,
        0x3FE << 52,
        0x3FF8 << 48,
        0x4004 << 48,
        0xC004 << 48,
        1 << 52,
        0x41DFFFFFFFE00000,
        0xC1E0000000200000,
        0x41F0000000000000,
        0x4170000010000000,
        0x36A0000000000000,
        0x380FFFFFE0000000,
        0x47EFFFFFE0000000,
        0x47EFFFFFF0000000,
        0x3FF0000010000000,
        0x3FF0000030000000,
    ],
}
INTEGERS = [
    *(0, 1, 0xFFFFFFFF, 0x7FFFFFFF, 0x80000000, 31, 32, 33, 0x7FFF, 0x8000, 0xFFFF, 0x10000),
    *(2, 3, 63, 64, 0x7F, 0x80, 0xFF, 0x7FFFFF, 0x800000, 0xFFFFFF, 0x80000001, 0xFFFFFFFE),
    *(0x0C0D0E0B, 0x04050607, 0x200000, 0x100010, 0x1F001F, 0x200001, 0x400000),
]
WIDE = [0, 1, (1 << 64) - 1, (1 << 63) - 1, 1 << 63, (1 << 32) - 1, 1 << 32, 0xFFFFFFFF00000000, 63, 64, 65, 1 << 31]


def special_bits(kind: str) -> list[int]:
    if kind[0] == "f":
        return FLOAT_BITS[BITS[kind]]
    return {64: WIDE, 1: [0, 1]}.get(BITS[kind], INTEGERS)


def random_bits(kind: str, count: int, generator: np.random.Generator) -> np.ndarray:
    """Half ordinary values of the type (small integers, floats near 1), half any bits."""
    anything = generator.integers(0, 2**64, count, np.uint64)
    power = generator.integers(-6, 7, count)
    floats = generator.standard_normal(count) * 10.0**power
    if kind == "f64":
        ordinary = floats.view(np.uint64)
    elif kind == "f32":
        ordinary = floats.astype(np.float32).view(np.uint32).astype(np.uint64)
    elif kind[0] == "f":
        ordinary = (floats / 10.0**power).astype(np.float16).view(np.uint16).astype(np.uint64)
    else:
        ordinary = generator.integers(0, 70, count, np.uint64)
    return np.where(generator.random(count) < 0.5, ordinary, anything)


def column(kind: str, position: int, generator: np.random.Generator) -> np.ndarray:
    """Raw operands: specials crossed with each other, then specials and random values. Above the type: noise."""
    if kind.endswith("x2"):
        low, high = (column(kind[:-2], place, generator) for place in (position, 2))
        bits = np.uint64(BITS[kind] // 2)
        return low & ((np.uint64(1) << bits) - np.uint64(1)) | high << bits & np.uint64((1 << BITS[kind]) - 1)
    known = np.array(special_bits(kind), np.uint64)
    crossed = np.resize(known[:CROSSED], CROSSED)
    first = np.repeat(crossed, CROSSED) if position == 0 else np.tile(crossed, CROSSED)
    if position > 1:
        first = generator.choice(known, CROSSED * CROSSED)
    rest = SAMPLES - len(first)
    mixed = np.where(generator.random(rest) < 0.5, generator.choice(known, rest), random_bits(kind, rest, generator))
    raw = np.concatenate([first, mixed])
    bits = BITS[kind]
    if bits == 64:
        return raw
    low = raw & np.uint64((1 << bits) - 1)
    if bits == 16:
        return low | generator.integers(0, 1 << 16, SAMPLES, np.uint64) << np.uint64(16)
    return low


@dataclass(frozen=True)
class Samples:
    """Operand columns by source position, the old destination, and the flag (vcc or scc)."""

    sources: list[np.ndarray]
    old: np.ndarray
    flag: np.ndarray


def draw(row: Row) -> Samples:
    generator = np.random.default_rng(zlib.crc32(row.name.encode()))
    sources = [column(kind, position, generator) for position, kind in enumerate(row.sources)]
    old_kind = row.destination or "u64"
    if row.section == "exec":
        sources.append(column("u64", 1, generator))  # exec
    return Samples(sources, column(old_kind, 2, generator), generator.integers(0, 2, SAMPLES, np.uint64))


def device_columns(row: Row, samples: Samples, wave_size: int) -> list[np.ndarray]:
    """Buffers of pointers 1 to 5."""
    given = [data for position, data in enumerate(samples.sources) if position != row.literal]
    columns = [*given, *[np.zeros(SAMPLES, np.uint64)] * (3 - len(given)), samples.old, samples.flag]
    if row.is_scalar:
        wide = [np.repeat(data, wave_size) for data in columns]
        return [*wide[:4], wide[4].astype(np.uint32)]
    kinds = [kind for position, kind in enumerate(row.sources) if position != row.literal]
    sizes = [*(BITS[kind] for kind in kinds), *[32] * (3 - len(kinds)), BITS[row.destination], 32]
    return [data if bits == 64 else data.astype(np.uint32) for data, bits in zip(columns, sizes, strict=True)]


def run_kernel(
    hip: Hip, code_object: Path, row: Row, kernel: str, result: str, samples: Samples, wave_size: int
) -> np.ndarray:
    """Raw results of the emulator, one per sample."""
    columns = device_columns(row, samples, wave_size)
    wide = row.is_scalar or (result == "d" and BITS[row.destination] == 64)
    buffers = [hip.buffer(np.zeros(len(columns[0]), np.uint64 if wide else np.uint32)), *map(hip.buffer, columns)]
    groups = len(columns[0]) // wave_size
    hip.launch(hip.kernel(code_object, kernel), pointers(*buffers), (groups, 1, 1), (wave_size, 1, 1))
    raw = buffers[0].read()
    for buffer in buffers:
        buffer.free()
    return raw[::wave_size].copy() if row.is_scalar else raw


def environment(row: Row, samples: Samples, index: int, wave_size: int) -> Env:
    """Named values of one sample, as the pseudo-code calls them."""
    operands = [int(data[index]) for data in samples.sources]
    env: Env = {"D0": make("b", 64, int(samples.old[index])), "ROUND_MODE": make("u", 32, 0)}
    env["D1"] = make("b", 64, 0)
    flag = int(samples.flag[index])
    env["SCC"], env["VCC"] = make("u", 1, flag), make("b", 64, flag)
    env["WAVE32"], env["laneId"] = make("u", 1, int(wave_size == 32)), make("u", 32, 0)
    slot = 0
    for position, kind in enumerate(row.sources):
        if kind == "mask":
            env["VCC"] = make("b", 64, int(operands[position] & 1))
        elif kind.startswith("k16"):
            env[f"S{slot}"] = env["SIMM16"] = make("b", 16, LITERAL16)
        elif position == row.literal:
            env["SIMM32"] = make("b", 32, LITERAL32)
        else:
            env[f"S{slot}"] = make("b", 64 if BITS[kind] == 64 else 32, operands[position])
            slot += 1
    if row.section == "exec":
        env["EXEC"] = make("b", 64, operands[-1] & ((1 << wave_size) - 1))
    elif row.section == "compare":
        env["EXEC"], env["D0"] = make("b", 64, 1), make("b", 64, 0)
    if row.mixed:
        env["S"] = [make("b", 32, operand) for operand in operands]
        env["OPSEL"] = make("b", 3, sum(bit << i for i, bit in enumerate(OP_SEL)))
        env["OPSEL_HI"] = make("b", 3, sum(bit << i for i, bit in enumerate(OP_SEL_HI)))
    return env


def read_result(row: Row, result: str, env: Env) -> int:
    if result == "d" and row.destination.endswith("16z"):  # gfx9 clears the other half, of which the text says nothing
        return int(env["D0"].raw & 0xFFFF)
    if result == "d":
        return int(env["D0"].raw & ((1 << (64 if row.is_scalar or BITS[row.destination] == 64 else 32)) - 1))
    if result == "scc":
        return int(env["SCC"].raw & 1)
    if row.section == "exec":
        return int(env["EXEC"].raw)
    if row.section == "compare":
        return int((env["D0"] if result == "mask" else env["EXEC"]).raw & 1)
    return int((env["D1"] if "D1" in env["written"] else env["VCC"]).raw & 1)


def evaluate(compiler: Compiler, entry: str, row: Row, result: str, samples: Samples, wave_size: int) -> list[int]:
    """The pseudo-code's results, one per sample."""
    program, _ = compiler.program(entry)
    text = compiler.entries[entry]
    written = {name for name in ("D1",) if name in text}
    by_lane = "laneId.u32" in text
    expected = []
    for index in range(SAMPLES):
        env = environment(row, samples, index, wave_size)
        if by_lane:
            env["laneId"] = make("u", 32, index % wave_size)
        try:
            program(env)
        except PcodeError as error:
            raise PcodeError(f"{entry}: {error}") from error
        env["written"] = written
        expected.append(read_result(row, result, env))
    return expected


def values_of(kind: str, raw: int) -> Value | None:
    """A result as a float value, or None where its type is not a float."""
    if not kind.startswith("f"):
        return None
    bits = BITS[kind]
    return make("f", bits, raw >> 16 if kind == "f16hi" else raw)
