"""IEEE 754 arithmetic on raw bits with Python integers: exact, rounded once, without the host's FPU."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Format:
    """A binary interchange format by its field widths."""

    exponent_bits: int
    mantissa_bits: int

    @property
    def width(self) -> int:
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def bias(self) -> int:
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent_bits) - 1) << self.mantissa_bits

    @property
    def nan(self) -> int:
        return self.infinity | 1 << (self.mantissa_bits - 1)

    @property
    def sign_bit(self) -> int:
        return 1 << (self.width - 1)


FORMATS = {"f16": Format(5, 10), "bf16": Format(8, 7), "f32": Format(8, 23), "f64": Format(11, 52)}


def fields(fmt: Format, raw: int) -> tuple[int, int, int]:
    """(sign, exponent field, mantissa field)."""
    return (
        raw >> (fmt.width - 1) & 1,
        raw >> fmt.mantissa_bits & ((1 << fmt.exponent_bits) - 1),
        raw & ((1 << fmt.mantissa_bits) - 1),
    )


def is_nan(fmt: Format, raw: int) -> bool:
    return raw & ~fmt.sign_bit > fmt.infinity


def is_infinite(fmt: Format, raw: int) -> bool:
    return raw & ~fmt.sign_bit == fmt.infinity


def is_denormal(fmt: Format, raw: int) -> bool:
    return 0 < raw & ~fmt.sign_bit < 1 << fmt.mantissa_bits


def exact(fmt: Format, raw: int) -> Fraction:
    """Value of a finite number (both zeros are 0)."""
    sign, exponent, mantissa = fields(fmt, raw)
    if exponent:
        mantissa |= 1 << fmt.mantissa_bits
    power = max(exponent, 1) - fmt.bias - fmt.mantissa_bits
    value = Fraction(mantissa << power) if power >= 0 else Fraction(mantissa, 1 << -power)
    return -value if sign else value


def round_to(fmt: Format, value: Fraction, negative_zero: bool = False, toward_zero: bool = False) -> int:
    """Raw bits of the nearest number, ties to even (or toward zero); overflow gives infinity (or the largest)."""
    if value == 0:
        return fmt.sign_bit if negative_zero else 0
    sign = fmt.sign_bit if value < 0 else 0
    top, bottom = abs(value.numerator), value.denominator
    scale = top.bit_length() - bottom.bit_length()  # 2**(scale - 1) < value < 2**(scale + 1)
    if (top << -scale if scale < 0 else top) < (bottom << scale if scale > 0 else bottom):
        scale -= 1
    exponent = max(scale, 1 - fmt.bias)
    shift = fmt.mantissa_bits - exponent
    top, bottom = (top << shift, bottom) if shift >= 0 else (top, bottom << -shift)
    whole, rest = divmod(top, bottom)
    if not toward_zero and (2 * rest > bottom or (2 * rest == bottom and whole & 1)):
        whole += 1
    # A carry out of the mantissa adds one to the exponent field by itself.
    raw = whole + ((exponent + fmt.bias - 1) << fmt.mantissa_bits)
    if raw >= fmt.infinity:
        raw = fmt.infinity - 1 if toward_zero else fmt.infinity
    return sign | raw


def convert(source: Format, raw: int, target: Format, toward_zero: bool = False) -> int:
    sign = target.sign_bit if raw & source.sign_bit else 0
    if is_nan(source, raw):
        return sign | target.nan
    if is_infinite(source, raw):
        return sign | target.infinity
    return round_to(target, exact(source, raw), bool(sign), toward_zero)


def add(fmt: Format, a: int, b: int) -> int:
    if is_nan(fmt, a) or is_nan(fmt, b):
        return fmt.nan
    if is_infinite(fmt, a) or is_infinite(fmt, b):
        if is_infinite(fmt, a) and is_infinite(fmt, b):
            return a if a == b else fmt.nan
        return a if is_infinite(fmt, a) else b
    both_negative = bool(a & b & fmt.sign_bit)
    return round_to(fmt, exact(fmt, a) + exact(fmt, b), both_negative)


def multiply(fmt: Format, a: int, b: int) -> int:
    sign = (a ^ b) & fmt.sign_bit
    if is_nan(fmt, a) or is_nan(fmt, b):
        return fmt.nan
    if is_infinite(fmt, a) or is_infinite(fmt, b):
        return fmt.nan if not (a & ~fmt.sign_bit and b & ~fmt.sign_bit) else sign | fmt.infinity
    return round_to(fmt, exact(fmt, a) * exact(fmt, b), bool(sign))


def fused_multiply_add(fmt: Format, a: int, b: int, c: int) -> int:
    special = is_infinite(fmt, a) or is_infinite(fmt, b) or is_infinite(fmt, c)
    if is_nan(fmt, a) or is_nan(fmt, b) or is_nan(fmt, c):
        return fmt.nan
    if special:
        product = multiply(fmt, a, b) if is_infinite(fmt, a) or is_infinite(fmt, b) else 0
        return add(fmt, product, c)
    product_negative = bool((a ^ b) & fmt.sign_bit)
    return round_to(fmt, exact(fmt, a) * exact(fmt, b) + exact(fmt, c), product_negative and bool(c & fmt.sign_bit))


def divide(fmt: Format, a: int, b: int) -> int:
    sign = (a ^ b) & fmt.sign_bit
    if is_nan(fmt, a) or is_nan(fmt, b):
        return fmt.nan
    a_zero, b_zero = not a & ~fmt.sign_bit, not b & ~fmt.sign_bit
    if is_infinite(fmt, a) or b_zero:
        return fmt.nan if (is_infinite(fmt, b) or (a_zero and b_zero)) else sign | fmt.infinity
    if is_infinite(fmt, b):
        return sign
    return round_to(fmt, exact(fmt, a) / exact(fmt, b), bool(sign))


def square_root(fmt: Format, a: int) -> int:
    if is_nan(fmt, a) or (a & fmt.sign_bit and a != fmt.sign_bit):
        return fmt.nan
    if is_infinite(fmt, a) or not a & ~fmt.sign_bit:
        return a
    value = exact(fmt, a)
    # Enough bits that only an exact root could be a tie, and a sticky bit below them where it is not exact.
    shift = 2 * (fmt.mantissa_bits + 4) + value.denominator.bit_length()
    shift += shift & 1
    scaled = (value.numerator << (2 * shift)) // value.denominator
    root = math.isqrt(scaled)
    exact_root = root * root == scaled and (value.numerator << (2 * shift)) % value.denominator == 0
    return round_to(fmt, Fraction(2 * root + (0 if exact_root else 1), 1 << (shift + 1)))


def to_float(fmt: Format, raw: int) -> float:
    """A Python float of the same value: exact for every format here."""
    sign = -1.0 if raw & fmt.sign_bit else 1.0
    if is_nan(fmt, raw):
        return math.nan
    if is_infinite(fmt, raw):
        return sign * math.inf
    return math.copysign(float(exact(fmt, raw)), sign)


def from_float(fmt: Format, value: float, toward_zero: bool = False) -> int:
    if math.isnan(value):
        return fmt.nan
    sign = fmt.sign_bit if math.copysign(1, value) < 0 else 0
    if math.isinf(value):
        return sign | fmt.infinity
    return round_to(fmt, Fraction(value), bool(sign), toward_zero)
