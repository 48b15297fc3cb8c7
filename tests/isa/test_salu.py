"""Scalar ALU instructions: result and scc against definitions in Python integers."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.isa.conftest import RDNA, has
from tests.isa.hip_runtime import Hip, pointers

M32, M64 = 2**32 - 1, 2**64 - 1
# A definition takes the two 64-bit operands and scc, and gives (result, scc); None leaves that part as it was.
Definition = Callable[[int, int, int], tuple[int | None, int | None]]


def signed(value: int, bits: int = 32) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def word(define: Callable[[int, int], int], nonzero: bool = False) -> Definition:
    """A 32-bit operation on the low words; `nonzero` sets scc where the result is not 0."""

    def apply(a: int, b: int, scc: int) -> tuple[int, int | None]:
        value = define(a & M32, b & M32) & M32
        return value, int(value != 0) if nonzero else None

    return apply


def double(define: Callable[[int, int], int], nonzero: bool = False) -> Definition:
    def apply(a: int, b: int, scc: int) -> tuple[int, int | None]:
        value = define(a, b) & M64
        return value, int(value != 0) if nonzero else None

    return apply


def compare(define: Callable[[int, int], bool]) -> Definition:
    return lambda a, b, scc: (None, int(define(a & M32, b & M32)))


def signed_compare(define: Callable[[int, int], bool]) -> Definition:
    return lambda a, b, scc: (None, int(define(signed(a), signed(b))))


def with_carry(define: Callable[[int, int, int], int]) -> Definition:
    def apply(a: int, b: int, scc: int) -> tuple[int, int]:
        exact = define(a & M32, b & M32, scc)
        return exact & M32, int(not 0 <= exact <= M32)

    return apply


def overflow(define: Callable[[int, int], int]) -> Definition:
    def apply(a: int, b: int, scc: int) -> tuple[int, int]:
        exact = define(signed(a), signed(b))
        return exact & M32, int(not -(2**31) <= exact < 2**31)

    return apply


def chooses(define: Callable[[int, int], int], is_signed: bool) -> Definition:
    """min or max: scc where the first operand is the result (for max also where both are equal)."""

    def apply(a: int, b: int, scc: int) -> tuple[int, int]:
        x, y = (signed(v) if is_signed else v & M32 for v in (a, b))
        return define(x, y) & M32, int(x < y if define is min else x >= y)

    return apply


def as_float(raw: int) -> float:
    return struct.unpack("<f", struct.pack("<I", raw & M32))[0]


def float_bits(value: float) -> int:
    with np.errstate(all="ignore"):
        return int(np.array(value).astype(np.float32).view(np.uint32))


def floats(define: Callable[[np.float64, np.float64], float]) -> Definition:
    """A 32-bit float operation whose f64 result rounds to the right f32."""

    def apply(a: int, b: int, scc: int) -> tuple[int, None]:
        with np.errstate(all="ignore"):
            return float_bits(define(np.float64(as_float(a)), np.float64(as_float(b)))), None

    return apply


def float_compare(define: Callable[[float, float], bool]) -> Definition:
    return lambda a, b, scc: (None, int(define(as_float(a), as_float(b))))


def float_minimum(x: float, y: float) -> float:
    if math.isnan(x) or math.isnan(y):
        return y if math.isnan(x) else x
    return min((x, y), key=lambda v: (v, math.copysign(1, v)))


def float_maximum(x: float, y: float) -> float:
    return -float_minimum(-x, -y)


def to_integer(low: int, high: int) -> Definition:
    def apply(a: int, b: int, scc: int) -> tuple[int, None]:
        x = as_float(b)
        return (0 if math.isnan(x) else high if x >= high else low if x <= low else math.trunc(x)) & M32, None

    return apply


def bfe(bits: int, is_signed: bool) -> Definition:
    def apply(a: int, b: int, scc: int) -> tuple[int, int]:
        offset, width = b & (bits - 1), min((b >> 16) & 0x7F, bits)
        source = signed(a, bits) if is_signed else a & ((1 << bits) - 1)
        field = (source >> offset) & ((1 << width) - 1)
        value = (signed(field, width) if is_signed and width else field) & ((1 << bits) - 1)
        return value, int(value != 0)

    return apply


def lshl_add(n: int) -> Definition:
    def apply(a: int, b: int, scc: int) -> tuple[int, int]:
        exact = ((a & M32) << n) + (b & M32)
        return exact & M32, int(exact > M32)

    return apply


def exec_result(define: Callable[[int, int], int], keeps_old: bool) -> Definition:
    """exec becomes define(source, exec); the scalar destination (high half) gets the old exec or the new one."""

    def apply(a: int, b: int, scc: int) -> tuple[int, int]:
        old = a & M32
        new = define(b & M32, old) & M32
        return new | ((old if keeps_old else new) << 32), int(new != 0)

    return apply


def ctz(value: int, bits: int) -> int:
    return next((i for i in range(bits) if (value >> i) & 1), -1)


LOGIC: dict[str, Callable[[int, int], int]] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "and_not1": lambda a, b: a & ~b,
    "or_not1": lambda a, b: a | ~b,
    "nand": lambda a, b: ~(a & b),
    "nor": lambda a, b: ~(a | b),
    "xnor": lambda a, b: ~(a ^ b),
}
ORDER: dict[str, Callable[[float, float], bool]] = {
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
}
CASES: dict[str, Definition] = {
    **{f"s_{name}_b32": word(define, nonzero=True) for name, define in LOGIC.items()},
    **{f"s_{name}_b64": double(define, nonzero=True) for name, define in LOGIC.items()},
    "s_mov_b32": word(lambda a, b: b),
    "s_mov_b64": double(lambda a, b: b),
    "s_not_b32": word(lambda a, b: ~b, nonzero=True),
    "s_not_b64": double(lambda a, b: ~b, nonzero=True),
    "s_cmov_b64": lambda a, b, scc: (b if scc else a, None),
    "s_cmov_b32": lambda a, b, scc: ((b if scc else a) & M32, None),
    "s_brev_b32": word(lambda a, b: int(f"{b:032b}"[::-1], 2)),
    "s_abs_i32": word(lambda a, b: abs(signed(b)), nonzero=True),
    "s_bcnt1_i32_b32": word(lambda a, b: b.bit_count(), nonzero=True),
    "s_bcnt1_i32_b64": lambda a, b, scc: (b.bit_count(), int(b != 0)),
    "s_ctz_i32_b32": word(lambda a, b: ctz(b, 32)),
    "s_ctz_i32_b64": lambda a, b, scc: (ctz(b, 64) & M32, None),
    "s_clz_i32_u32": word(lambda a, b: 32 - b.bit_length() if b else -1),
    "s_sext_i32_i16": word(lambda a, b: signed(b, 16)),
    "s_sext_i32_i8": word(lambda a, b: signed(b, 8)),
    "s_bitset0_b32": word(lambda a, b: a & ~(1 << (b & 31))),
    "s_bitset1_b32": word(lambda a, b: a | (1 << (b & 31))),
    "s_cselect_b32": lambda a, b, scc: ((a if scc else b) & M32, None),
    "s_cselect_b64": lambda a, b, scc: (a if scc else b, None),
    "s_lshl_b32": word(lambda a, b: a << (b & 31), nonzero=True),
    "s_lshr_b32": word(lambda a, b: a >> (b & 31), nonzero=True),
    "s_ashr_i32": word(lambda a, b: signed(a) >> (b & 31), nonzero=True),
    "s_lshl_b64": double(lambda a, b: a << (b & 63), nonzero=True),
    "s_lshr_b64": double(lambda a, b: a >> (b & 63), nonzero=True),
    "s_ashr_i64": double(lambda a, b: signed(a, 64) >> (b & 63), nonzero=True),
    "s_add_co_u32": with_carry(lambda a, b, scc: a + b),
    "s_sub_co_u32": with_carry(lambda a, b, scc: a - b),
    "s_add_co_ci_u32": with_carry(lambda a, b, scc: a + b + scc),
    "s_sub_co_ci_u32": with_carry(lambda a, b, scc: a - b - scc),
    "s_add_co_i32": overflow(lambda a, b: a + b),
    "s_sub_co_i32": overflow(lambda a, b: a - b),
    "s_add_nc_u64": double(lambda a, b: a + b),
    "s_sub_nc_u64": double(lambda a, b: a - b),
    "s_mul_u64": double(lambda a, b: a * b),
    "s_mul_i32": word(lambda a, b: a * b),
    "s_mul_hi_u32": word(lambda a, b: (a * b) >> 32),
    "s_mul_hi_i32": word(lambda a, b: (signed(a) * signed(b)) >> 32),
    "s_min_u32": chooses(min, False),
    "s_max_u32": chooses(max, False),
    "s_min_i32": chooses(min, True),
    "s_max_i32": chooses(max, True),
    **{f"s_lshl{n}_add_u32": lshl_add(n) for n in (1, 2, 3, 4)},
    "s_bfe_u32": bfe(32, False),
    "s_bfe_i32": bfe(32, True),
    "s_bfe_u64": bfe(64, False),
    "s_bfm_b32": word(lambda a, b: ((1 << (a & 31)) - 1) << (b & 31)),
    "s_pack_ll_b32_b16": word(lambda a, b: (a & 0xFFFF) | (b << 16)),
    "s_pack_lh_b32_b16": word(lambda a, b: (a & 0xFFFF) | (b & 0xFFFF0000)),
    "s_pack_hl_b32_b16": word(lambda a, b: (a >> 16) | (b << 16)),
    "s_pack_hh_b32_b16": word(lambda a, b: (a >> 16) | (b & 0xFFFF0000)),
    **{f"s_cmp_{name}_u32": compare(define) for name, define in ORDER.items()},
    **{f"s_cmp_{name}_i32": signed_compare(define) for name, define in ORDER.items()},
    **{f"s_cmp_{name}_f32": float_compare(ORDER[name]) for name in ("eq", "lt", "le", "gt", "ge")},
    "s_cmp_neq_f32": float_compare(lambda a, b: a != b),
    "s_cmp_nlt_f32": float_compare(lambda a, b: not a < b),
    "s_cmp_nle_f32": float_compare(lambda a, b: not a <= b),
    "s_cmp_ngt_f32": float_compare(lambda a, b: not a > b),
    "s_cmp_nge_f32": float_compare(lambda a, b: not a >= b),
    "s_cmp_eq_u64": lambda a, b, scc: (None, int(a == b)),
    "s_cmp_lg_u64": lambda a, b, scc: (None, int(a != b)),
    "s_bitcmp0_b32": compare(lambda a, b: (a >> (b & 31)) & 1 == 0),
    "s_bitcmp1_b32": compare(lambda a, b: (a >> (b & 31)) & 1 == 1),
    "s_movk_i32": word(lambda a, b: signed(0x8765, 16)),
    "s_addk_co_i32": overflow(lambda a, b: a + signed(0x8765, 16)),
    "s_mulk_i32": word(lambda a, b: a * signed(0x8765, 16)),
    "s_add_f32": floats(lambda a, b: a + b),
    "s_sub_f32": floats(lambda a, b: a - b),
    "s_mul_f32": floats(lambda a, b: a * b),
    "s_fmac_f32": floats(lambda a, b: a * b + a),
    "s_min_num_f32": floats(float_minimum),
    "s_max_num_f32": floats(float_maximum),
    "s_ceil_f32": floats(lambda a, b: np.ceil(b)),
    "s_floor_f32": floats(lambda a, b: np.floor(b)),
    "s_trunc_f32": floats(lambda a, b: np.trunc(b)),
    "s_rndne_f32": floats(lambda a, b: np.rint(b)),
    "s_cvt_f32_i32": word(lambda a, b: float_bits(np.int32(signed(b)))),
    "s_cvt_f32_u32": word(lambda a, b: float_bits(np.uint32(b))),
    "s_cvt_u32_f32": to_integer(0, M32),
    "s_cvt_i32_f32": to_integer(-(2**31), 2**31 - 1),
    "s_and_saveexec_b32": exec_result(lambda s, e: s & e, True),
    "s_or_saveexec_b32": exec_result(lambda s, e: s | e, True),
    "s_xor_saveexec_b32": exec_result(lambda s, e: s ^ e, True),
    "s_and_not1_saveexec_b32": exec_result(lambda s, e: s & ~e, True),
    "s_and_not0_saveexec_b32": exec_result(lambda s, e: ~s & e, True),
    "s_or_not1_saveexec_b32": exec_result(lambda s, e: s | ~e, True),
    "s_or_not0_saveexec_b32": exec_result(lambda s, e: ~s | e, True),
    "s_and_not1_wrexec_b32": exec_result(lambda s, e: s & ~e, False),
    "s_and_not0_wrexec_b32": exec_result(lambda s, e: ~s & e, False),
    "inline_b64": double(lambda a, b: -2),
    "null_destination": lambda a, b, scc: (None, int((a & M32) + (b & M32) > M32)),
}
SPECIALS = [
    0,
    1,
    2,
    31,
    32,
    0x7FFFFFFF,
    0x80000000,
    M32,
    0x100000000,
    0x8000000000000000,
    M64,
    0x3F800000,
    0xBF800000,
    0x7F800000,
    0x7FC00000,
    0x4F000000,
    0xCF000000,
    0x00100003,
    0x00200000,
    0x3F000000,
    0x40200000,
    0x80000001,
]


def both_or_word(name: str, a: int) -> int:
    """A 32-bit result leaves the high half of the destination, which starts as a."""
    return a & ~M32


GFX12_ONLY = {"s_add_nc_u64", "s_sub_nc_u64", "s_mul_u64"}


def knows(gpu: str, name: str) -> bool:
    """Whether the GPU has the instruction."""
    return (has(gpu, "GFX12") or name not in GFX12_ONLY) and (has(gpu, "SCALAR_FLOAT") or "f32" not in name)


@pytest.mark.parametrize(
    ("rdna", "name"), [(gpu, name) for gpu in RDNA for name in CASES if knows(gpu, name)], indirect=["rdna"]
)
def test_instruction(hip: Hip, isa_kernels: Path, rdna: str, name: str) -> None:
    generator = np.random.default_rng(7)
    pairs = [(a, b) for a in SPECIALS for b in SPECIALS]
    pairs += [tuple(map(int, row)) for row in generator.integers(0, 2**64, (200, 2), np.uint64)]
    pairs += [(a, int(generator.integers(0, 2**23))) for a, _ in pairs[-100:]]
    a, b = (np.array(column, np.uint64) for column in zip(*pairs, strict=True))
    scc = np.arange(len(pairs), dtype=np.uint32) % 3 % 2
    result = hip.buffer(np.zeros((len(pairs), 4), np.uint32))
    inputs = [hip.buffer(column) for column in (a, b, scc)]
    kernel = hip.kernel(isa_kernels / f"{rdna}_salu.co", f"op_{name}")
    hip.launch(kernel, pointers(result, *inputs), (len(pairs), 1, 1))
    got = result.read()
    for buffer in [result, *inputs]:
        buffer.free()
    wide = (
        name.endswith(("b64", "i64", "u64")) and not name.startswith(("s_bcnt", "s_ctz", "s_cmp"))
    ) or "exec" in name
    for i, (x, y) in enumerate(pairs):
        value, flag = CASES[name](x, y, int(scc[i]))
        expected = x if value is None else value if wide else value | both_or_word(name, x)
        actual = int(got[i, 0]) | (int(got[i, 1]) << 32)
        if "f32" in name and value is not None and math.isnan(as_float(value)) and math.isnan(as_float(actual)):
            actual = expected
        assert (hex(actual), got[i, 2]) == (hex(expected), scc[i] if flag is None else flag), (
            f"{name} a={x:#x} b={y:#x} scc={scc[i]}"
        )
