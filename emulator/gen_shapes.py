"""Shapes as fa-emu-shapes prints them, and what operand types are in C++; used by gen.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

VECTOR_TYPES = {"u32": "U32", "s32": "S32", "f32": "F32", "u64": "U64", "s64": "S64", "f64": "F64"}
SCALAR_TYPES = {"u32": "u32", "s32": "s32", "f32": "float", "u64": "u64", "s64": "s64", "k16": "u32", "k16u": "u32"}
FLOATS = {"f32", "f64", "f16", "f16hi", "f16z"}
HALVES = {"f16", "f16hi", "f16z", "b16", "b16z"}
# Modifiers that make another instruction of one name: it has a row with this ending.
ROW_ENDINGS = {"lds": "_lds", "glc": "_rtn", "sc0": "_rtn", "return": "_rtn"}
# How the loader turns a constant operand into bits, per operand type (machine/program.cpp).
CONSTANT_CODES = {
    "u32": "i",
    "s32": "i",
    "f32": "i",
    "mask": "i",
    "b32": "i",
    "u64": "Q",
    "s64": "q",
    "f64": "d",
    "b64": "Q",
}
CONSTANT_CODES |= {"k16": "k", "k16u": "K", "f16": "h", "b16": "h", "dst": "D", "none": "-"}
CONSTANT_CODES |= {"hwreg": "R", "bf16": "b", "smem_offset": "o", "label": "L"}
CONSTANT_CODES |= {"f16x2": "H", "b16x2": "H", "f32x2": "P", "u32x2": "P"}


class ShapeError(Exception):
    """A shape that the table cannot express; the text says why."""


@dataclass(frozen=True)
class Operand:
    """One operand of a shape: `kind` is v, u, x, off or a text; `half` is l or h for 16-bit halves."""

    kind: str
    half: str
    neg: bool
    absolute: bool
    sign_extended: bool = False


@dataclass(frozen=True)
class Shape:
    key: str
    example: str
    mnemonic: str
    operands: tuple[Operand, ...]
    modifiers: Mapping[str, str]

    @property
    def row_name(self) -> str:
        """The instruction's name in the table."""
        return self.mnemonic + next((ending for name, ending in ROW_ENDINGS.items() if name in self.modifiers), "")


@dataclass(frozen=True)
class Code:
    """What a shape becomes: statements of its handler (None: nothing to do) and the loader's constant codes."""

    body: tuple[str, ...] | None
    codes: str


def parse_operand(text: str) -> Operand:
    """Reads one operand of a shape, such as -|v or v.l."""
    neg, text = text.startswith("-"), text.removeprefix("-")
    absolute, text = text.startswith("|"), text.removeprefix("|")
    sign_extended, text = text.startswith("sext:"), text.removeprefix("sext:")
    kind, dot, half = text.partition(".")
    return Operand(kind, half if dot else "", neg, absolute, sign_extended)


def parse_shape(line: str) -> Shape:
    """Reads one line of fa-emu-shapes."""
    key, _, example = line.partition("\t")
    mnemonic, _, rest = key.partition(" ")
    operand_text, _, modifier_text = rest.partition(" ")
    operands = tuple(parse_operand(part) for part in operand_text.split(",") if part)
    modifiers = {word.partition(":")[0]: word.partition(":")[2] for word in modifier_text.split()}
    return Shape(key, example, mnemonic, operands, modifiers)
