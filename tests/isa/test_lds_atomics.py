"""LDS atomics, each alone: what it returns and what it leaves in memory (ISA guide, chapter 16, "LDS instructions")."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.isa.attention import from_bits, to_bits
from tests.isa.hip_runtime import Hip, pointers

LANES, OLD = 32, 0x5A5A5A5A
Operation = Callable[[Any, Any, Any], Any]  # (memory, data, second operand) -> memory


def smaller(a: float, b: float) -> float:
    if math.isnan(a) or math.isnan(b):
        return b if math.isnan(a) else a
    return min(a, b, key=lambda x: (x, math.copysign(1, x)))


def packed_sum(dtype: str) -> Operation:
    def add(memory: int, data: int, _: int) -> int:
        halves = np.array([[memory & 0xFFFF, memory >> 16], [data & 0xFFFF, data >> 16]], np.uint16)
        low, high = to_bits(from_bits(halves, dtype).sum(axis=0), dtype)
        return int(low) | int(high) << 16

    return add


INTEGER: dict[str, Operation] = {
    "add": lambda m, d, s: m + d,
    "sub": lambda m, d, s: m - d,
    "rsub": lambda m, d, s: d - m,
    "inc": lambda m, d, s: 0 if m >= d else m + 1,
    "dec": lambda m, d, s: d if m == 0 or m > d else m - 1,
    "min": lambda m, d, s: min(m, d),
    "max": lambda m, d, s: max(m, d),
}
BITS: dict[str, Operation] = {
    "and": lambda m, d, s: m & d,
    "or": lambda m, d, s: m | d,
    "xor": lambda m, d, s: m ^ d,
    "mskor": lambda m, d, s: (m & ~d) | s,
    "cmpstore": lambda m, d, s: d if m == s else m,
    "storexchg": lambda m, d, s: d,
}
OPERATIONS: dict[str, Operation] = {f"{op}_u{bits}": define for op, define in INTEGER.items() for bits in (32, 64)}
OPERATIONS |= {f"{op}_i{bits}": INTEGER[op] for op in ("min", "max") for bits in (32, 64)}
OPERATIONS |= {f"{op}_b{bits}": define for op, define in BITS.items() for bits in (32, 64)}
OPERATIONS |= {f"min_num_f{bits}": lambda m, d, s: smaller(m, d) for bits in (32, 64)}
OPERATIONS |= {f"max_num_f{bits}": lambda m, d, s: -smaller(-m, -d) for bits in (32, 64)}
OPERATIONS |= {"add_f32": lambda m, d, s: m + d}
OPERATIONS |= {"sub_clamp_u32": lambda m, d, s: max(m - d, 0), "cond_sub_u32": lambda m, d, s: m - d if m >= d else m}
OPERATIONS |= {"pk_add_f16": packed_sum("fp16"), "pk_add_bf16": packed_sum("bf16")}
FLOAT_SPECIALS = [0.0, -0.0, 1.5, -2.25, math.inf, -math.inf, math.nan, 1e-30, 3e38]


@pytest.fixture
def code(isa_kernels: Path) -> Path:
    return isa_kernels / "gfx1201_lds.co"


def operands(name: str, seed: int) -> np.ndarray:
    """(3, LANES) values of the operation's type as 64-bit patterns: memory, data, second operand."""
    generator = np.random.default_rng(seed)
    kind, bits = name.split("_")[-1][:-2], int(name[-2:])
    if kind == "f" and bits > 16:
        values = generator.choice([*FLOAT_SPECIALS, *generator.standard_normal(9)], (3, LANES))
        return values.view(np.uint64) if bits == 64 else values.astype(np.float32).view(np.uint32).astype(np.uint64)
    if bits == 16:
        dtype = "fp16" if kind == "f" else "bf16"
        halves = to_bits(generator.standard_normal((3, LANES, 2)), dtype).astype(np.uint64)
        return halves[..., 0] | halves[..., 1] << np.uint64(16)
    top = (1 << bits) - 1
    special = np.array([0, 1, 2, top, top >> 1, (top >> 1) + 1], np.uint64)
    drawn = generator.integers(0, top, (3, LANES), np.uint64, endpoint=True)
    return np.where(generator.random((3, LANES)) < 0.5, generator.choice(special, (3, LANES)), drawn)


def decode(name: str, raw: int) -> Any:
    kind, bits = name.split("_")[-1][:-2], int(name[-2:])
    if kind == "f" and bits > 16:
        return float(np.array(raw, f"u{bits // 8}").view(f"f{bits // 8}"))
    return raw - (1 << bits) if kind == "i" and raw >> (bits - 1) else raw


def encode(name: str, value: Any) -> int:
    kind, bits = name.split("_")[-1][:-2], int(name[-2:])
    if kind == "f" and bits > 16:
        with np.errstate(over="ignore"):
            return int(np.array(value, f"f{bits // 8}").view(f"u{bits // 8}"))
    return int(value) & ((1 << max(bits, 32)) - 1)


def run(hip: Hip, code: Path, kernel: str, raw: np.ndarray) -> np.ndarray:
    """(LANES, 2) 64-bit words: the destination register pair, and the memory afterwards."""
    second = np.zeros((LANES, 2), np.uint64)
    second[:, 0] = raw[2]
    buffers = [hip.buffer(np.zeros((LANES, 2), np.uint64)), hip.buffer(raw[:2].T.copy()), hip.buffer(second)]
    hip.launch(hip.kernel(code, kernel), pointers(*buffers).ljust(32, b"\0"))
    result = buffers[0].read()
    for buffer in buffers:
        buffer.free()
    return result


def same(name: str, got: int, expected: int) -> bool:
    return got == expected or (
        name.endswith(("f32", "f64")) and math.isnan(decode(name, got)) and math.isnan(decode(name, expected))
    )


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation(hip: Hip, code: Path, name: str) -> None:
    """With and without the value returned; a 32-bit operation leaves the high halves alone."""
    operation, kind = name.rsplit("_", 1)
    forms = [f"ds_{operation}_rtn_{kind}"] + ([] if operation == "storexchg" else [f"ds_{name}"])
    width = max(int(name[-2:]), 32)
    mask = (1 << width) - 1
    for seed in range(6):
        raw = operands(name, seed)
        if operation == "cmpstore":
            raw[2, ::2] = raw[0, ::2]
        for form in forms:
            result = run(hip, code, form, raw)
            for lane in range(LANES):
                memory, data, second = (int(column[lane]) for column in raw)
                expected = encode(name, OPERATIONS[name](*(decode(name, v) for v in (memory, data, second))))
                got_register, got_memory = (int(word) for word in result[lane])
                label = f"{form}: memory {memory:#x}, data {data:#x}, second {second:#x}"
                assert same(name, got_memory & mask, expected), f"{label}: left {got_memory:#x}, not {expected:#x}"
                if form != f"ds_{name}":
                    assert got_register & mask == memory & mask, f"{label}: returned {got_register:#x}"
                rest = got_register if form == f"ds_{name}" else got_register & ~mask
                assert rest == (OLD << 32 | OLD) & (~0 if form == f"ds_{name}" else ~mask)


def test_every_lane_of_every_wave_counts(hip: Hip, code: Path) -> None:
    """128 lanes add 1 to one dword: each sees another value, and no barrier is needed between them."""
    result = hip.buffer(np.zeros(128, np.uint32))
    hip.launch(hip.kernel(code, "ds_tickets"), pointers(result).ljust(32, b"\0"), block=(128, 1, 1))
    values = sorted(result.read().tolist())
    result.free()
    assert values == list(range(128))
