"""Functions that the pseudo-code calls without defining them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from tests.isa.pcode import softfloat, values
from tests.isa.pcode.softfloat import FORMATS
from tests.isa.pcode.syntax import PcodeError
from tests.isa.pcode.values import Value, boolean, make

CONVERSION = re.compile(r"(bf|[uif])(\d+)_to_(bf|[uif])(\d+)$")


def rounded(fn: Callable[[float], float]) -> Callable[[Value], Value]:
    """An ideal function in double precision, rounded to the operand's format; outside its domain NaN."""

    def apply(value: Value) -> Value:
        try:
            result = fn(softfloat.to_float(value.format, value.raw))
        except OverflowError:
            result = math.inf
        except ValueError:
            result = math.nan
        return Value(value.kind, value.width, softfloat.from_float(value.format, result))

    return apply


def integral(fn: Callable[[softfloat.Fraction], int]) -> Callable[[Value], Value]:
    """floor and trunc: exact, the sign of a zero result is the operand's."""

    def apply(value: Value) -> Value:
        fmt = value.format
        if softfloat.is_nan(fmt, value.raw) or softfloat.is_infinite(fmt, value.raw):
            return value
        whole = softfloat.Fraction(fn(softfloat.exact(fmt, value.raw)))
        return Value(value.kind, value.width, softfloat.round_to(fmt, whole, bool(value.raw & fmt.sign_bit)))

    return apply


def log2(value: float) -> float:
    return -math.inf if value == 0 else math.log2(value)


def power(base: Value, exponent: Value) -> Value:
    if softfloat.to_float(base.format, base.raw) != 2.0:
        raise PcodeError("pow of another base than 2.0")
    return rounded(math.exp2)(exponent)


def exponent_field(value: Value) -> Value:
    return make("i", 32, softfloat.fields(value.format, value.raw)[1])


def mantissa(value: Value) -> Value:
    """Of a finite number: the fraction in [0.5, 1) with the sign, as frexp."""
    return rounded(lambda x: x if math.isnan(x) or math.isinf(x) else math.frexp(x)[0])(value)


def absolute(value: Value) -> Value:
    return Value(value.kind, value.width, value.raw & ~value.format.sign_bit)


def is_nan(value: Value) -> bool:
    return softfloat.is_nan(value.format, value.raw)


def quiet_bit(value: Value) -> bool:
    return bool(value.raw & 1 << (value.format.mantissa_bits - 1))


def quieted(value: Value) -> Value:
    return Value(value.kind, value.width, value.raw | 1 << (value.format.mantissa_bits - 1))


def fused(a: Value, b: Value, c: Value) -> Value:
    if not a.kind == b.kind == c.kind or not a.width == b.width == c.width:
        raise PcodeError("fma of different formats")
    return Value(a.kind, a.width, softfloat.fused_multiply_add(a.format, a.raw, b.raw, c.raw))


def fraction(value: Value) -> Value:
    return values.binary("-", value, integral(math.floor)(value))


def is_even(value: Value) -> Value:
    number = softfloat.to_float(value.format, value.raw)
    return boolean(math.isfinite(number) and math.fmod(number, 2.0) == 0.0)


def sign_extend(value: Value) -> Value:
    return make("i", 64, make("i", value.width, value.raw).integer())


def sign_extend_from_bit(value: Value, width: Value) -> Value:
    bits = width.integer()
    return make("i", value.width, make("i", bits, value.raw).integer() if bits else 0)


def normalized(value: Value, signed: bool) -> Value:
    """f16/f32 to 16-bit snorm or unorm: scaled, clamped, rounded to nearest even."""
    number = softfloat.to_float(value.format, value.raw)
    largest = 32767 if signed else 65535
    if math.isnan(number):
        return make("i" if signed else "u", 16, 0)
    clamped = max(-1.0 if signed else 0.0, min(1.0, number))
    return make("i" if signed else "u", 16, round(softfloat.Fraction(clamped) * largest))


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "fma": fused,
    "abs": absolute,
    "sign": lambda v: boolean(bool(v.raw & v.format.sign_bit)),
    "exponent": exponent_field,
    "mantissa": mantissa,
    "isNAN": lambda v: boolean(is_nan(v)),
    "isQuietNAN": lambda v: boolean(is_nan(v) and quiet_bit(v)),
    "isSignalNAN": lambda v: boolean(is_nan(v) and not quiet_bit(v)),
    "cvtToQuietNAN": quieted,
    "isEven": is_even,
    "trunc": integral(math.trunc),
    "floor": integral(math.floor),
    "fract": fraction,
    "sqrt": lambda v: Value(v.kind, v.width, softfloat.square_root(v.format, v.raw)),
    "ldexp": lambda v, n: values.scale(v, n.integer()),
    "pow": power,
    "log2": rounded(log2),
    "sin": rounded(math.sin),
    "cos": rounded(math.cos),
    "signext": sign_extend,
    "signext_from_bit": sign_extend_from_bit,
    "bitCount": lambda v: make("u", 32, v.raw.bit_count()),
    "f16_to_snorm": lambda v: normalized(v, True),
    "f32_to_snorm": lambda v: normalized(v, True),
    "f16_to_unorm": lambda v: normalized(v, False),
    "f32_to_unorm": lambda v: normalized(v, False),
}


def conversion(name: str) -> Callable[[Value, bool], Value] | None:
    """Function of a name like f32_to_f16: (value, toward_zero) to the other type; None for another name."""
    found = CONVERSION.match(name)
    if found is None:
        return None
    source, target = (found.group(1), int(found.group(2))), (found.group(3), int(found.group(4)))

    def apply(value: Value, toward_zero: bool) -> Value:
        value = values.reinterpret(value, *source)
        if value.is_float and target[0] in ("f", "bf"):
            to = FORMATS[f"{target[0]}{target[1]}"]
            return Value(*target, softfloat.convert(value.format, value.raw, to, toward_zero))
        if value.is_float:
            return values.to_integer(value, *target)
        if target[0] in ("f", "bf"):
            return values.from_integer(value, *target, toward_zero)
        return make(*target, saturate(value.integer(), *target))

    return apply


def saturate(number: int, kind: str, width: int) -> int:
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if kind == "i" else (0, (1 << width) - 1)
    return max(low, min(high, number))
