"""What atomics do to memory, by instruction name without the ending for the space, and operands for them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.isa.attention import from_bits, to_bits
from tests.isa.conftest import has

LANES = 32
OLD = 0x5A5A5A5A  # what the destination holds before
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
GFX12_ONLY = {"sub_clamp_u32", "cond_sub_u32", "pk_add_f16", "pk_add_bf16"}
# gfx11's minima and maxima, which the kernels call by gfx12's names: a NaN never compares less or greater.
GFX11: dict[str, Operation] = {f"min_num_f{bits}": lambda m, d, s: d if d < m else m for bits in (32, 64)}
GFX11 |= {f"max_num_f{bits}": lambda m, d, s: d if d > m else m for bits in (32, 64)}
FLOAT_SPECIALS = [0.0, -0.0, 1.5, -2.25, math.inf, -math.inf, math.nan, 1e-30, 3e38]


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


def same(name: str, got: int, expected: int) -> bool:
    return got == expected or (
        name.endswith(("f32", "f64")) and math.isnan(decode(name, got)) and math.isnan(decode(name, expected))
    )


def definition(gpu: str, name: str) -> Operation:
    """What the GPU's instruction that kernels call by this name does."""
    return OPERATIONS[name] if has(gpu, "GFX12") else (OPERATIONS | GFX11)[name]
