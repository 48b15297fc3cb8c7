"""Typed values of the pseudo-code: raw bits with a kind (u, i, f, bf, b) and a width, and the operators on them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass

from tests.isa.pcode import softfloat
from tests.isa.pcode.softfloat import FORMATS, Format
from tests.isa.pcode.syntax import PcodeError


@dataclass(frozen=True, slots=True)
class Value:
    """`raw` has `width` bits, but for kind "power": then raw is the exponent of an exact power of two."""

    kind: str
    width: int
    raw: int

    @property
    def is_float(self) -> bool:
        return self.kind in ("f", "bf")

    @property
    def format(self) -> Format:
        return FORMATS[f"{self.kind}{self.width}"]

    def integer(self) -> int:
        """As a Python integer, with the sign that the kind gives it."""
        if self.is_float or self.kind == "power":
            raise PcodeError(f"a {self.kind}{self.width} where an integer is due")
        return self.raw - (1 << self.width) if self.kind == "i" and self.raw >> (self.width - 1) else self.raw

    def truth(self) -> bool:
        return bool(self.raw)


def make(kind: str, width: int, integer: int) -> Value:
    return Value(kind, width, integer & ((1 << width) - 1))


def boolean(value: bool) -> Value:
    return Value("u", 1, int(value))


def number(kind: str, width: int, value: float) -> Value:
    if kind == "f":
        return Value("f", width, softfloat.from_float(FORMATS[f"f{width}"], value))
    return make(kind, width, int(value))


def reinterpret(value: Value, kind: str, width: int) -> Value:
    """`.type`: the low bits, zero above; no conversion."""
    return make(kind, width, value.raw)


def cast(value: Value, kind: str, width: int) -> Value:
    """N'K(value): conversion of numbers; an integer in F is taken as bits, as the entries use it."""
    if kind == "f":
        if not value.is_float:
            return make("f", width, value.raw)
        return Value("f", width, softfloat.convert(value.format, value.raw, FORMATS[f"f{width}"]))
    if value.is_float:
        raise PcodeError(f"a cast of a float to {width}'{kind.upper()}")
    return make(kind, width, value.integer())


def store(value: Value, kind: str, width: int) -> Value:
    """What an assignment to `.type` keeps of a value."""
    if (value.kind, value.width) == (kind, width):
        return value
    if kind in ("f", "bf") and value.is_float:
        return Value(kind, width, softfloat.convert(value.format, value.raw, FORMATS[f"{kind}{width}"]))
    if kind in ("f", "bf") or value.is_float:
        if value.kind != "b" and kind != "b" and value.width != width:
            raise PcodeError(f"assignment of {value.kind}{value.width} to {kind}{width}")
        return make(kind, width, value.raw)
    return make(kind, width, value.integer())


def common_float(a: Value, b: Value) -> tuple[Value, Value]:
    if not (a.is_float and b.is_float):
        raise PcodeError(f"{a.kind}{a.width} and {b.kind}{b.width} in one operation")
    if a.kind == b.kind and a.width == b.width:
        return a, b
    wide = a if a.width > b.width else b
    return cast(a, wide.kind, wide.width), cast(b, wide.kind, wide.width)


def negate(value: Value) -> Value:
    if value.is_float:
        return Value(value.kind, value.width, value.raw ^ value.format.sign_bit)
    return make(value.kind, value.width, -value.integer())


def scale(value: Value, exponent: int) -> Value:
    """value * 2**exponent, rounded once."""
    fmt = value.format
    if softfloat.is_nan(fmt, value.raw) or softfloat.is_infinite(fmt, value.raw) or not value.raw & ~fmt.sign_bit:
        return Value(value.kind, value.width, fmt.nan if softfloat.is_nan(fmt, value.raw) else value.raw)
    exponent = max(-3000, min(3000, exponent))
    exact = softfloat.exact(fmt, value.raw)
    power = softfloat.Fraction(1 << exponent) if exponent >= 0 else softfloat.Fraction(1, 1 << -exponent)
    return Value(value.kind, value.width, softfloat.round_to(fmt, exact * power))


def float_arithmetic(name: str, a: Value, b: Value) -> Value:
    if name == "*" and (a.kind == "power" or b.kind == "power"):
        value, power = (b, a) if a.kind == "power" else (a, b)
        return scale(value, power.raw)
    a, b = common_float(a, b)
    fmt = a.format
    if name == "+":
        raw = softfloat.add(fmt, a.raw, b.raw)
    elif name == "-":
        raw = softfloat.add(fmt, a.raw, b.raw ^ fmt.sign_bit)
    elif name == "*":
        raw = softfloat.multiply(fmt, a.raw, b.raw)
    elif name == "/":
        raw = softfloat.divide(fmt, a.raw, b.raw)
    else:
        raise PcodeError(f"operator {name} on floats")
    return Value(a.kind, a.width, raw)


ORDER: dict[str, Callable[[object, object], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
}
INTEGER: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "%": operator.mod,
    "/": operator.floordiv,
}


def compare(name: str, a: Value, b: Value) -> Value:
    if a.is_float or b.is_float:
        a, b = common_float(a, b)
        if softfloat.is_nan(a.format, a.raw) or softfloat.is_nan(b.format, b.raw):
            return boolean(False)  # "<>" and "!=" are "less or greater"; the negated forms say !(a == b)
        return boolean(ORDER[name](softfloat.to_float(a.format, a.raw), softfloat.to_float(b.format, b.raw)))
    kind, width = common_integer(a, b)
    return boolean(ORDER[name](cast(a, kind, width).integer(), cast(b, kind, width).integer()))


def common_integer(a: Value, b: Value) -> tuple[str, int]:
    """The wider type; of equal widths the unsigned one."""
    if a.width != b.width:
        wide = a if a.width > b.width else b
        return wide.kind, wide.width
    return ("i" if a.kind == b.kind == "i" else "u" if "u" in (a.kind, b.kind) else a.kind), a.width


def binary(name: str, a: Value, b: Value) -> Value:
    if name in ORDER:
        return compare(name, a, b)
    if name == "**":
        if a.is_float and softfloat.to_float(a.format, a.raw) == 2.0:
            return Value("power", a.width, b.integer())
        raise PcodeError("a power of another base than 2.0")
    if a.is_float or b.is_float or "power" in (a.kind, b.kind):
        return float_arithmetic(name, a, b)
    if name in ("<<", ">>"):
        distance = b.integer()
        if distance < 0:
            raise PcodeError("a negative shift")
        return make(a.kind, a.width, a.integer() << distance if name == "<<" else a.integer() >> distance)
    kind, width = common_integer(a, b)
    return make(kind, width, INTEGER[name](a.integer(), b.integer()))


def to_integer(value: Value, kind: str, width: int) -> Value:
    """Float to integer: toward zero, saturating, 0 for NaN."""
    number_ = softfloat.to_float(value.format, value.raw)
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if kind == "i" else (0, (1 << width) - 1)
    if math.isnan(number_):
        return make(kind, width, 0)
    if math.isinf(number_):
        return make(kind, width, high if number_ > 0 else low)
    return make(kind, width, max(low, min(high, math.trunc(number_))))


def from_integer(value: Value, kind: str, width: int, toward_zero: bool) -> Value:
    exact = softfloat.Fraction(value.integer())
    return Value(kind, width, softfloat.round_to(FORMATS[f"{kind}{width}"], exact, toward_zero=toward_zero))
