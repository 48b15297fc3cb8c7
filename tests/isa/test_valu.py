"""Vector ALU instructions against definitions written in numpy, with special values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.isa.conftest import RDNA, has
from tests.isa.hip_runtime import Hip
from tests.isa.lane_tests import assert_same, operands, run_lanes, typed

Array = np.ndarray
U32, U64, F32, F64 = np.uint32, np.uint64, np.float32, np.float64


@dataclass(frozen=True)
class Op:
    """An instruction: operand types, result type, and its definition on typed arrays."""

    sources: str
    result: str
    define: Callable[..., Array]
    ulps: int = 0


def each(function: Callable[..., object]) -> Callable[..., Array]:
    """A definition in Python numbers, applied element by element."""
    return lambda *columns: np.array([function(*(value.item() for value in row)) for row in zip(*columns, strict=True)])


def as_u32(function: Callable[..., int]) -> Callable[..., Array]:
    return lambda *columns: np.array(
        [function(*map(int, row)) & 0xFFFFFFFF for row in zip(*columns, strict=True)], np.uint64
    ).astype(U32)


def as_u64(function: Callable[..., int]) -> Callable[..., Array]:
    return lambda *columns: np.array(
        [function(*map(int, row)) & (2**64 - 1) for row in zip(*columns, strict=True)], U64
    )


def signed(value: int, bits: int = 32) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def perm_byte(data: int, selector: int) -> int:
    if selector >= 13:
        return 0xFF
    if selector == 12:
        return 0
    if selector >= 8:
        return 0xFF if (data >> (16 * (selector - 8) + 15)) & 1 else 0
    return (data >> (8 * selector)) & 0xFF


def perm(a: int, b: int, s: int) -> int:
    return sum(perm_byte((a << 32) | b, (s >> (8 * i)) & 0xFF) << (8 * i) for i in range(4))


def ones(value: int) -> int:
    return bin(value).count("1")


def bfe(a: int, b: int, c: int) -> int:
    return (a >> (b & 31)) & ((1 << (c & 31)) - 1)


def bfe_signed(a: int, b: int, c: int) -> int:
    """Bits beyond the operand's sign are the sign: the shift is arithmetic."""
    return signed(signed(a) >> (b & 31), c & 31) if c & 31 else 0


def max_number(a: Array, b: Array) -> Array:
    """IEEE 754-2019 maximumNumber."""
    larger = np.where((a == 0) & (b == 0), np.where(np.signbit(a), b, a), np.where(a > b, a, b))
    return np.where(np.isnan(a), b, np.where(np.isnan(b), a, larger))


def min_number(a: Array, b: Array) -> Array:
    smaller = np.where((a == 0) & (b == 0), np.where(np.signbit(a), a, b), np.where(a < b, a, b))
    return np.where(np.isnan(a), b, np.where(np.isnan(b), a, smaller))


def with_nan(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    return lambda a, b: np.where(np.isnan(a) | np.isnan(b), F32(np.nan), function(a, b))


def median(a: Array, b: Array, c: Array) -> Array:
    """The larger of what is left without the largest (zeros are equal); with a NaN, the smallest number."""
    largest = max_number(max_number(a, b), c)
    middle = np.where(largest == a, max_number(b, c), np.where(largest == b, max_number(a, c), max_number(a, b)))
    return np.where(np.isnan(a) | np.isnan(b) | np.isnan(c), min_number(min_number(a, b), c), middle)


def flush(a: Array) -> Array:
    return np.where(np.abs(a) < F32(1.1754944e-38), np.copysign(F32(0), a), a)


def via_f64(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A transcendental: f32 denormals are flushed on both sides, the value is computed in f64."""
    return lambda a: flush(function(flush(a).astype(F64)).astype(F32))


def fma32(a: Array, b: Array, c: Array) -> Array:
    """The f32 fused multiply-add with one rounding: the f64 result, corrected with exact fractions."""
    from fractions import Fraction

    result = (a.astype(F64) * b.astype(F64) + c.astype(F64)).astype(F32)
    for i in np.flatnonzero(np.isfinite(a) & np.isfinite(b) & np.isfinite(c)):
        exact = Fraction(float(a[i])) * Fraction(float(b[i])) + Fraction(float(c[i]))
        result[i] = round_fraction(exact, result[i])
    return result


def round_fraction(exact: object, guess: np.floating) -> np.floating:
    """The float nearest to an exact value among a guess and its neighbours, ties to even."""
    from fractions import Fraction

    assert isinstance(exact, Fraction)
    if not np.isfinite(guess) or exact == 0:
        return guess
    infinity = guess.dtype.type(np.inf)
    candidates = [
        value for value in (np.nextafter(guess, -infinity), guess, np.nextafter(guess, infinity)) if np.isfinite(value)
    ]
    unsigned = U32 if guess.dtype == F32 else U64
    best = min(candidates, key=lambda v: (abs(Fraction(float(v)) - exact), int(np.array(v).view(unsigned)) & 1))
    return np.copysign(best, guess) if best == 0 else best


def fma64(a: Array, b: Array, c: Array) -> Array:
    from fractions import Fraction

    result = np.where(np.isfinite(a) & np.isfinite(b) & np.isinf(c), c, a * b + c)
    for i in np.flatnonzero(np.isfinite(a) & np.isfinite(b) & np.isfinite(c)):
        exact = Fraction(float(a[i])) * Fraction(float(b[i])) + Fraction(float(c[i]))
        if exact == 0:
            continue
        try:
            result[i] = exact.numerator / exact.denominator  # Python's integer division rounds once, to nearest even
        except OverflowError:
            result[i] = math.inf if exact > 0 else -math.inf
    return result


def to_integer(low: int, high: int) -> Callable[..., Array]:
    """Float to integer: truncates, saturates, NaN gives 0."""
    return as_u32_of_float(lambda x: 0 if math.isnan(x) else high if x >= high else low if x <= low else math.trunc(x))


def as_u32_of_float(function: Callable[[float], int]) -> Callable[..., Array]:
    return lambda a: np.array([function(float(x)) & 0xFFFFFFFF for x in a], np.uint64).astype(U32)


def div_fixup(dtype: type, bias_field: int, mantissa: int, limit: int) -> Callable[..., Array]:
    def exponent(value: float) -> int:
        unsigned = U32 if dtype is F32 else U64
        return (int(np.array(value, dtype).view(unsigned)) >> mantissa) & bias_field

    def one(quotient: float, denominator: float, numerator: float) -> float:
        sign = math.copysign(1, denominator) * math.copysign(1, numerator)
        if math.isnan(numerator) or math.isnan(denominator):
            return math.nan
        if (denominator == 0 and numerator == 0) or (math.isinf(denominator) and math.isinf(numerator)):
            return math.nan
        if denominator == 0 or math.isinf(numerator):
            return sign * math.inf
        if math.isinf(denominator) or numerator == 0:
            return sign * 0.0
        if exponent(numerator) - exponent(denominator) < limit:
            return sign * 0.0
        return math.copysign(quotient, sign) if not math.isnan(quotient) else math.nan

    return lambda *columns: each(one)(*columns).astype(dtype)


def ldexp(dtype: type) -> Callable[..., Array]:
    def define(a: Array, e: Array) -> Array:
        with np.errstate(all="ignore"):
            if dtype is F64:
                return np.array(
                    [
                        math.nan if math.isnan(x) else np.ldexp(F64(x), max(-3000, min(3000, int(n))))
                        for x, n in zip(a, e, strict=True)
                    ],
                    F64,
                )
            return np.ldexp(a.astype(F64), np.clip(e, -700, 700)).astype(F32)

    return define


Halves = tuple[int, int, int]


def half_bits(values: Array) -> Array:
    return values.astype(np.float16).view(np.uint16).astype(U32)


def half_value(halves: Array) -> Array:
    return halves.astype(np.uint16).view(np.float16).astype(F32)


def half_towards_zero(values: Array) -> Array:
    nearest = values.astype(np.float16)
    too_large = np.abs(nearest.astype(F64)) > np.abs(values.astype(F64))
    return np.where(too_large, np.nextafter(nearest, np.float16(0)), nearest).view(np.uint16).astype(U32)


def canonical_halves(raw: Array) -> Array:
    """f16 NaNs in either half replaced by one NaN, so that payloads do not count."""
    low, high = raw & 0xFFFF, raw >> 16
    low = np.where((low & 0x7FFF) > 0x7C00, 0x7E00, low)
    return low | (np.where((high & 0x7FFF) > 0x7C00, 0x7E00, high) << 16)


def mixed(high: bool) -> Callable[..., Array]:
    def define(a: Array, b: Array, c: Array) -> Array:
        value = half_bits(fma32(a, b, c))
        old = a.view(U32)
        return (old & 0xFFFF) | (value << 16) if high else (old & 0xFFFF0000) | value

    return define


def half_op(function: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    """Low halves combined into the high half of a copy of the first operand."""

    def define(a: Array, b: Array) -> Array:
        x, y = ((v & 0xFFFF).astype(np.uint16).view(np.float16) for v in (a, b))
        return (a & 0xFFFF) | (function(x, y).view(np.uint16).astype(U32) << 16)

    return define


def carry(function: Callable[..., int]) -> Callable[..., Array]:
    """{carry or borrow, low 32 bits} of an exact result."""
    return as_u64(lambda *v: (function(*v) & 0xFFFFFFFF) | ((0 if 0 <= function(*v) < 2**32 else 1) << 32))


def divisible(inputs: list[Array], kind: str) -> Array:
    """Operands whose exponents differ by less than 190 (f32) or 1100 (f64).

    Beyond that V_DIV_SCALE's scaling does not keep the quotient in range, and how the sequence ends is not documented.
    """
    shift, field, limit = (23, 255, 190) if kind == "f32" else (52, 2047, 1100)
    numerator, denominator = ((column.astype(np.uint64) >> U64(shift)).astype(np.int64) & field for column in inputs)
    return numerator - denominator < limit


def lane(count: int) -> Array:
    return np.arange(count) % 32


def below(a: Array, b: Array) -> Array:
    masks = (1 << lane(len(a)).astype(U64)) - 1
    return np.array(
        [ones(int(x) & int(m)) + int(y) & 0xFFFFFFFF for x, y, m in zip(a, b, masks, strict=True)], np.uint64
    ).astype(U32)


INTEGER = {
    "v_mov_b32": Op("u32", "u32", as_u32(lambda a: a)),
    "v_not_b32": Op("u32", "u32", as_u32(lambda a: ~a)),
    "v_bfrev_b32": Op("u32", "u32", as_u32(lambda a: int(f"{a:032b}"[::-1], 2))),
    "v_and_b32": Op("u32 u32", "u32", as_u32(lambda a, b: a & b)),
    "v_or_b32": Op("u32 u32", "u32", as_u32(lambda a, b: a | b)),
    "v_xor_b32": Op("u32 u32", "u32", as_u32(lambda a, b: a ^ b)),
    "v_xnor_b32": Op("u32 u32", "u32", as_u32(lambda a, b: ~(a ^ b))),
    "v_add_nc_u32": Op("u32 u32", "u32", as_u32(lambda a, b: a + b)),
    "v_sub_nc_u32": Op("u32 u32", "u32", as_u32(lambda a, b: a - b)),
    "v_subrev_nc_u32": Op("u32 u32", "u32", as_u32(lambda a, b: b - a)),
    "v_lshlrev_b32": Op("u32 u32", "u32", as_u32(lambda a, b: b << (a & 31))),
    "v_lshrrev_b32": Op("u32 u32", "u32", as_u32(lambda a, b: b >> (a & 31))),
    "v_ashrrev_i32": Op("u32 s32", "u32", as_u32(lambda a, b: b >> (a & 31))),
    "v_min_u32": Op("u32 u32", "u32", as_u32(min)),
    "v_max_u32": Op("u32 u32", "u32", as_u32(max)),
    "v_min_i32": Op("s32 s32", "u32", as_u32(min)),
    "v_max_i32": Op("s32 s32", "u32", as_u32(max)),
    "v_mul_lo_u32": Op("u32 u32", "u32", as_u32(lambda a, b: a * b)),
    "v_mul_hi_u32": Op("u32 u32", "u32", as_u32(lambda a, b: (a * b) >> 32)),
    "v_mul_hi_i32": Op("s32 s32", "u32", as_u32(lambda a, b: (a * b) >> 32)),
    "v_mul_u32_u24": Op("u32 u32", "u32", as_u32(lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF))),
    "v_mul_i32_i24": Op("u32 u32", "u32", as_u32(lambda a, b: signed(a, 24) * signed(b, 24))),
    "v_bcnt_u32_b32": Op("u32 u32", "u32", as_u32(lambda a, b: ones(a) + b)),
    "v_mbcnt_lo_u32_b32": Op("u32 u32", "u32", below),
    "v_mbcnt_hi_u32_b32": Op("u32 u32", "u32", as_u32(lambda a, b: b)),
    "v_or3_b32": Op("u32 u32 u32", "u32", as_u32(lambda a, b, c: a | b | c)),
    "v_xor3_b32": Op("u32 u32 u32", "u32", as_u32(lambda a, b, c: a ^ b ^ c)),
    "v_and_or_b32": Op("u32 u32 u32", "u32", as_u32(lambda a, b, c: (a & b) | c)),
    "v_add3_u32": Op("u32 u32 u32", "u32", as_u32(lambda a, b, c: a + b + c)),
    "v_add_lshl_u32": Op("u32 u32 u32", "u32", as_u32(lambda a, b, c: (a + b) << (c & 31))),
    "v_lshl_add_u32": Op("u32 u32 u32", "u32", as_u32(lambda a, b, c: (a << (b & 31)) + c)),
    "v_lshl_or_b32": Op("u32 u32 u32", "u32", as_u32(lambda a, b, c: (a << (b & 31)) | c)),
    "v_xad_u32": Op("u32 u32 u32", "u32", as_u32(lambda a, b, c: (a ^ b) + c)),
    "v_min3_u32": Op("u32 u32 u32", "u32", as_u32(min)),
    "v_max3_u32": Op("u32 u32 u32", "u32", as_u32(max)),
    "v_min3_i32": Op("s32 s32 s32", "u32", as_u32(min)),
    "v_max3_i32": Op("s32 s32 s32", "u32", as_u32(max)),
    "v_med3_i32": Op("s32 s32 s32", "u32", as_u32(lambda *v: sorted(v)[1])),
    "v_med3_u32": Op("u32 u32 u32", "u32", as_u32(lambda *v: sorted(v)[1])),
    "v_mad_u32_u24": Op("u32 u32 u32", "u32", as_u32(lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c)),
    "v_mad_i32_i24": Op("u32 u32 s32", "u32", as_u32(lambda a, b, c: signed(a, 24) * signed(b, 24) + c)),
    "v_bfe_u32": Op("u32 u32 u32", "u32", as_u32(bfe)),
    "v_bfe_i32": Op("u32 u32 u32", "u32", as_u32(bfe_signed)),
    "v_bfi_b32": Op("u32 u32 u32", "u32", as_u32(lambda a, b, c: (a & b) | (~a & c))),
    "v_alignbit_b32": Op("u32 u32 u32", "u32", as_u32(lambda a, b, c: ((a << 32) | b) >> (c & 31))),
    "v_alignbyte_b32": Op("u32 u32 u32", "u32", as_u32(lambda a, b, c: ((a << 32) | b) >> (8 * (c & 3)))),
    "v_perm_b32": Op("u32 u32 u32", "u32", as_u32(perm)),
    "v_sad_u16": Op(
        "u32 u32 u32", "u32", as_u32(lambda a, b, c: abs((a & 0xFFFF) - (b & 0xFFFF)) + abs((a >> 16) - (b >> 16)) + c)
    ),
    "v_sad_u32": Op("u32 u32 u32", "u32", as_u32(lambda a, b, c: abs(a - b) + c)),
    "v_lshlrev_b64": Op("u32 u64", "u64", as_u64(lambda a, b: b << (a & 63))),
    "v_lshrrev_b64": Op("u32 u64", "u64", as_u64(lambda a, b: b >> (a & 63))),
    "v_ashrrev_i64": Op("u32 s64", "u64", as_u64(lambda a, b: b >> (a & 63))),
    "v_add_co_u32": Op("u32 u32", "u64", carry(lambda a, b: a + b)),
    "v_sub_co_u32": Op("u32 u32", "u64", carry(lambda a, b: a - b)),
    "v_subrev_co_u32": Op("u32 u32", "u64", carry(lambda a, b: b - a)),
    "v_add_co_ci_u32": Op("u32 u32 u32", "u64", carry(lambda a, b, c: a + b + (c != 0))),
    "v_sub_co_ci_u32": Op("u32 u32 u32", "u64", carry(lambda a, b, c: a - b - (c != 0))),
    "v_mad_co_u64_u32": Op("u32 u32 u64", "u64", as_u64(lambda a, b, c: a * b + c)),
    "v_mad_co_i64_i32": Op("s32 s32 s64", "u64", as_u64(lambda a, b, c: a * b + c)),
    "v_cndmask_b32": Op("u32 u32 u32", "u32", lambda a, b, c: np.where(c != 0, b, a)),
}
FLOAT = {
    "v_add_f32": Op("f32 f32", "f32", lambda a, b: a + b),
    "v_sub_f32": Op("f32 f32", "f32", lambda a, b: a - b),
    "v_subrev_f32": Op("f32 f32", "f32", lambda a, b: b - a),
    "v_mul_f32": Op("f32 f32", "f32", lambda a, b: a * b),
    "v_mul_dx9_zero_f32": Op("f32 f32", "f32", lambda a, b: np.where((a == 0) | (b == 0), F32(0), a * b)),
    "v_min_num_f32": Op("f32 f32", "f32", min_number),
    "v_max_num_f32": Op("f32 f32", "f32", max_number),
    "v_minimum_f32": Op("f32 f32", "f32", with_nan(min_number)),
    "v_maximum_f32": Op("f32 f32", "f32", with_nan(max_number)),
    "v_max3_num_f32": Op("f32 f32 f32", "f32", lambda a, b, c: max_number(max_number(a, b), c)),
    "v_min3_num_f32": Op("f32 f32 f32", "f32", lambda a, b, c: min_number(min_number(a, b), c)),
    "v_maxmin_num_f32": Op("f32 f32 f32", "f32", lambda a, b, c: min_number(max_number(a, b), c)),
    "v_minmax_num_f32": Op("f32 f32 f32", "f32", lambda a, b, c: max_number(min_number(a, b), c)),
    "v_med3_num_f32": Op("f32 f32 f32", "f32", median),
    "v_fma_f32": Op("f32 f32 f32", "f32", fma32),
    "v_fmac_f32": Op("f32 f32 f32", "f32", fma32),
    "v_fmamk_f32": Op("f32 f32", "f32", lambda a, b: fma32(a, np.full_like(a, np.pi), b)),
    "v_fmaak_f32": Op("f32 f32", "f32", lambda a, b: fma32(a, b, np.full_like(a, np.pi))),
    "v_fma_mix_f32": Op("u32 f32 u32", "f32", lambda a, b, c: fma32(half_value(a >> 16), b, -half_value(c & 0xFFFF))),
    "v_floor_f32": Op("f32", "f32", np.floor),
    "v_ceil_f32": Op("f32", "f32", np.ceil),
    "v_trunc_f32": Op("f32", "f32", np.trunc),
    "v_rndne_f32": Op("f32", "f32", np.rint),
    "v_fract_f32": Op("f32", "f32", lambda a: np.minimum(a - np.floor(a), F32(0.99999994))),
    "v_rcp_f32": Op("f32", "f32", via_f64(lambda a: 1 / a), 1),
    "v_rcp_iflag_f32": Op("f32", "f32", via_f64(lambda a: 1 / a), 1),
    "v_sqrt_f32": Op("f32", "f32", via_f64(np.sqrt), 1),
    "v_rsq_f32": Op("f32", "f32", via_f64(lambda a: 1 / np.sqrt(a)), 1),
    "v_exp_f32": Op("f32", "f32", via_f64(np.exp2), 1),
    "v_log_f32": Op("f32", "f32", via_f64(np.log2), 1),
    "v_sin_f32": Op(
        "f32", "f32", lambda a: np.where(a == 0, a, np.sin(np.mod(a.astype(F64), 1) * 2 * np.pi).astype(F32)), 1
    ),
    "v_cos_f32": Op("f32", "f32", lambda a: np.cos(np.mod(a.astype(F64), 1) * 2 * np.pi).astype(F32), 1),
    "v_ldexp_f32": Op("f32 s32", "f32", ldexp(F32)),
    "v_div_fixup_f32": Op("f32 f32 f32", "f32", div_fixup(F32, 255, 23, -150)),
    "division_f32": Op("f32 f32", "f32", lambda a, b: a / b),
    "v_add_f64": Op("f64 f64", "f64", lambda a, b: a + b),
    "v_mul_f64": Op("f64 f64", "f64", lambda a, b: a * b),
    "v_fma_f64": Op("f64 f64 f64", "f64", fma64),
    "v_rcp_f64": Op("f64", "f64", lambda a: 1 / a),
    "v_sqrt_f64": Op("f64", "f64", np.sqrt),
    "v_rsq_f64": Op("f64", "f64", lambda a: 1 / np.sqrt(a)),
    "v_ldexp_f64": Op("f64 s32", "f64", ldexp(F64)),
    "v_div_fixup_f64": Op("f64 f64 f64", "f64", div_fixup(F64, 2047, 52, -1075)),
    "division_f64": Op("f64 f64", "f64", lambda a, b: a / b),
}
CONVERSIONS = {
    "v_cvt_f64_f32": Op("f32", "f64", lambda a: a.astype(F64)),
    "v_cvt_f32_f64": Op("f64", "f32", lambda a: a.astype(F32)),
    "v_cvt_f64_i32": Op("s32", "f64", lambda a: a.astype(F64)),
    "v_cvt_f64_u32": Op("u32", "f64", lambda a: a.astype(F64)),
    "v_cvt_f32_i32": Op("s32", "f32", lambda a: a.astype(F32)),
    "v_cvt_f32_u32": Op("u32", "f32", lambda a: a.astype(F32)),
    "v_cvt_i32_f32": Op("f32", "u32", to_integer(-(2**31), 2**31 - 1)),
    "v_cvt_u32_f32": Op("f32", "u32", to_integer(0, 2**32 - 1)),
    "v_cvt_i32_f64": Op("f64", "u32", to_integer(-(2**31), 2**31 - 1)),
    "v_cvt_u32_f64": Op("f64", "u32", to_integer(0, 2**32 - 1)),
    **{f"v_cvt_f32_ubyte{n}": Op("u32", "f32", lambda a, n=n: ((a >> (8 * n)) & 0xFF).astype(F32)) for n in range(4)},
    "v_cvt_f32_f16": Op("u32", "f32", lambda a: half_value(a >> 16)),
}
HALVES = {
    "v_cvt_f16_f32": Op("f32 u32", "u32", lambda a, b: (b & 0xFFFF) | (half_bits(a) << 16)),
    "v_cvt_pk_rtz_f16_f32": Op("f32 f32", "u32", lambda a, b: half_towards_zero(a) | (half_towards_zero(b) << 16)),
    "v_pack_b32_f16": Op("u32 u32", "u32", lambda a, b: (a >> 16) | (b << 16)),
    "v_fma_mixlo_f16": Op("f32 f32 f32", "u32", mixed(high=False)),
    "v_fma_mixhi_f16": Op("f32 f32 f32", "u32", mixed(high=True)),
    "v_mov_b16": Op("u32 u32", "u32", lambda a, b: (b & 0xFFFF0000) | (a >> 16)),
    "v_add_f16": Op("u32 u32", "u32", half_op(lambda a, b: a + b)),
    "v_sub_f16": Op("u32 u32", "u32", half_op(lambda a, b: a - b)),
    "v_subrev_f16": Op("u32 u32", "u32", half_op(lambda a, b: b - a)),
    "v_mul_f16": Op("u32 u32", "u32", half_op(lambda a, b: a * b)),
}


def packed(function: Callable[..., Array], low: Halves = (0, 0, 0), high: Halves = (1, 1, 1)) -> Callable[..., Array]:
    """Two f16 results; low and high say which half of each operand they take."""

    def define(*columns: Array) -> Array:
        results = []
        for halves in (low, high):
            chosen = [half_value(column >> (16 * half) & 0xFFFF) for column, half in zip(columns, halves, strict=False)]
            results.append(half_bits(function(*chosen)))
        return results[0] | (results[1] << 16)

    return define


def fma_half(a: Array, b: Array, c: Array) -> Array:
    """Products of f16 are exact in f64, and so are sums but for those of very different size."""
    return (a.astype(F64) * b.astype(F64) + c.astype(F64)).astype(np.float16).astype(F32)


def add_half(a: Array, b: Array) -> Array:
    return a + b


# Inline constants of packed instructions (RDNA3 ISA guide, 7.5.1 "Inline Constants with Packed Math"; RDNA4 ISA guide,
# 7.7.1: "{16'h0, const}"): the value is in the low 16 bits, as f16 where the operand is a float; the high ones are 0.
# op_sel_hi = 0 gives it to both halves, which is what LLVM writes for a constant in both (reviews.llvm.org/D45745).
PACKED = {
    "v_pk_add_f16": Op("u32 u32", "u32", packed(add_half)),
    "v_pk_mul_f16": Op("u32 u32", "u32", packed(lambda a, b: a * b)),
    "v_pk_min_num_f16": Op("u32 u32", "u32", packed(min_number)),
    "v_pk_max_num_f16": Op("u32 u32", "u32", packed(max_number)),
    "v_pk_fma_f16": Op("u32 u32 u32", "u32", packed(fma_half)),
    "pk_op_sel": Op("u32 u32", "u32", packed(add_half, (1, 0, 0), (0, 1, 0))),
    "pk_neg": Op("u32 u32", "u32", lambda a, b: packed(add_half)(a ^ 0x8000, b ^ 0x80000000)),
    "pk_clamp": Op("u32 u32", "u32", packed(lambda a, b: np.nan_to_num(np.clip(a + b, 0, 1), nan=0.0) + F32(0))),
    "pk_inline_f16": Op("u32 u32", "u32", lambda a, b: packed(add_half)(a, np.full_like(a, 0x00003C00))),
    "pk_inline_f16_twice": Op("u32 u32", "u32", lambda a, b: packed(add_half)(a, np.full_like(a, 0x3C003C00))),
    "pk_inline_u16": Op("u32 u32", "u32", lambda a, b: (a & 0xFFFF0000) | (a - 3 & 0xFFFF)),
    "pk_inline_u16_twice": Op("u32 u32", "u32", lambda a, b: ((a >> 16) - 3 << 16) | (a - 3 & 0xFFFF)),
    "pk_literal": Op("u32 u32", "u32", lambda a, b: ((a >> 16) + 0x1234 << 16) | (a + 0x5678 & 0xFFFF)),
}
ENCODINGS = {
    "flush_denormals": Op("f32 f32", "f32", lambda a, b: flush(flush(a) * flush(b))),
    "neg_abs_f32": Op("f32 f32", "f32", lambda a, b: np.abs(b) - np.abs(a)),
    "clamp_f32": Op("f32 f32", "f32", lambda a, b: np.nan_to_num(np.clip(a + b, 0, 1), nan=0.0) + F32(0)),
    "mul2_f32": Op("f32 f32", "f32", lambda a, b: (a + b) * F32(2)),
    "neg_f64": Op("f64 f64", "f64", lambda a, b: np.abs(b) - a),
    "inline_float": Op("f32", "f32", lambda a: a * F32(-0.5)),
    "inline_integer": Op("u32", "u32", as_u32(lambda a: a - 16)),
    "literal": Op("u32", "u32", as_u32(lambda a: a ^ 0xDEADBEEF)),
    "scalar_source": Op("u32", "u32", as_u32(lambda a: 0x1234567 - a)),
    "inline_f64": Op("f64", "f64", lambda a: a * 4),
    "literal_f64": Op("f64", "f64", lambda a: a + np.array([0x40091EB8 << 32], U64).view(F64)[0]),
    "exec_mask": Op("u32 u32", "u32", lambda a, b: np.where((0x0FF0F00F >> lane(len(a))) & 1, a, b)),
    "dual_swap": Op("u32 u32", "u64", as_u64(lambda a, b: b | (a << 32))),
    "dual_chain": Op(
        "f32 f32", "u64", lambda a, b: (a + b).view(U32).astype(U64) | ((a.view(U32) << 1).astype(U64) << 32)
    ),
    "dual_cndmask": Op(
        "u32 u32 u32", "u64", lambda a, b, c: np.where(c != 0, b, a).astype(U64) | (b.astype(U64) << 32)
    ),
}
ALL = INTEGER | FLOAT | CONVERSIONS | HALVES | PACKED | ENCODINGS
GFX12_ONLY = {"v_minimum_f32", "v_maximum_f32"}
CASES = [(gpu, name) for gpu in RDNA for name in ALL if has(gpu, "GFX12") or name not in GFX12_ONLY]


@pytest.mark.parametrize(("rdna", "name"), CASES, indirect=["rdna"])
def test_instruction(hip: Hip, isa_kernels: Path, rdna: str, name: str) -> None:
    op = ALL[name]
    kinds = op.sources.split()
    inputs = operands(kinds)
    raw = run_lanes(hip, isa_kernels / f"{rdna}_valu.co", f"op_{name}", inputs, int(op.result[1:]))
    with np.errstate(all="ignore"):
        expected = np.asarray(op.define(*(typed(column, kind) for column, kind in zip(inputs, kinds, strict=True))))
    expected = expected.astype({"f32": F32, "f64": F64, "u32": U32, "u64": U64}[op.result])
    if name.startswith("division"):
        raw, expected = raw[defined := divisible(inputs, kinds[0])], expected[defined]
        inputs = [column[defined] for column in inputs]
    if name in HALVES or name in PACKED:
        raw, expected = canonical_halves(raw), canonical_halves(expected)
    if name == "dual_chain":  # the first half is a float, whose NaN payload is not defined
        nan = np.isnan((expected & U64(0xFFFFFFFF)).astype(U32).view(F32))
        raw, expected = (np.where(nan, column & ~U64(0xFFFFFFFF), column) for column in (raw, expected))
    assert_same(name, raw, expected, inputs, op.ulps)
