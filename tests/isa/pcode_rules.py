"""Known differences between pseudo-code and emulator (pcode_differences.toml), and comparison under them."""

from __future__ import annotations

import fnmatch
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.isa.fuzz_rows import BITS, Row
from tests.isa.pcode import softfloat
from tests.isa.pcode.softfloat import FORMATS

FILE = Path(__file__).with_name("pcode_differences.toml")
KEYS = {
    "amended": {"text", "edits", "prefix", "reason", "source"},
    "tolerance": {"ulps", "flush", "reason", "source"},
}
SECTIONS = {*KEYS, "packed", "renamed", "not_compared"}
F32 = FORMATS["f32"]


@dataclass(frozen=True)
class Rules:
    amended: dict[str, dict[str, Any]]
    tolerance: dict[str, dict[str, Any]]
    packed: frozenset[str]
    renamed: dict[str, str]
    not_compared: dict[str, str]

    def excuses(self, instruction: str) -> bool:
        return any(fnmatch.fnmatch(instruction, pattern) for pattern in self.not_compared)

    def text(self, entry: str, text: str) -> str:
        """The entry as amended."""
        rule = self.amended.get(entry)
        if rule is None:
            return text
        text = rule.get("text", text)
        for find, replace in rule.get("edits", []):
            if find not in text:
                raise ValueError(f"{FILE.name}: [amended.{entry}] finds {find!r} nowhere in {text!r}")
            text = text.replace(find, replace)
        return f"{rule['prefix']};\n{text}" if "prefix" in rule else text


def load_rules() -> Rules:
    data = tomllib.loads(FILE.read_text())
    if unknown := set(data) - SECTIONS:
        raise ValueError(f"{FILE.name}: unknown sections {sorted(unknown)}; known: {sorted(SECTIONS)}")
    for section, keys in KEYS.items():
        for name, rule in data.get(section, {}).items():
            if set(rule) - keys or not {"reason", "source"} <= set(rule):
                raise ValueError(f"{FILE.name}: [{section}.{name}] has {sorted(rule)}; known: {sorted(keys)}")
    return Rules(
        data.get("amended", {}),
        data.get("tolerance", {}),
        frozenset(data.get("packed", {}).get("names", [])),
        data.get("renamed", {}),
        data.get("not_compared", {}),
    )


def flushed(raw: int) -> int:
    return raw & F32.sign_bit if softfloat.is_denormal(F32, raw) else raw


def float_parts(row: Row, result: str, raw: int, packed: bool) -> tuple[list[tuple[str, int]], int]:
    """The floats of a result as (format, bits), and the bits that are no float."""
    if packed:
        return [("f16", raw & 0xFFFF), ("f16", raw >> 16 & 0xFFFF)], raw >> 32
    if result == "d" and row.destination.endswith("x2"):
        half = BITS[row.destination] // 2
        return [(f"f{half}", raw >> shift & ((1 << half) - 1)) for shift in (0, half)], 0
    if result != "d" or not row.destination.startswith("f"):
        return [], raw
    if row.destination == "f16hi":
        return [("f16", raw >> 16 & 0xFFFF)], raw & 0xFFFF
    bits = BITS[row.destination]
    return [(f"f{bits}", raw & ((1 << bits) - 1))], raw >> bits


def steps_between(fmt: str, a: int, b: int) -> int | None:
    """Distance in steps of the format, 0 between NaNs; None where only one is special, or signs differ."""
    kind = FORMATS[fmt]
    if a == b or (softfloat.is_nan(kind, a) and softfloat.is_nan(kind, b)):
        return 0
    special = any(softfloat.is_nan(kind, x) or softfloat.is_infinite(kind, x) for x in (a, b))
    return None if special or (a ^ b) & kind.sign_bit else abs(a - b)


def same(row: Row, result: str, got: int, expected: int, packed: bool, ulps: int) -> bool:
    if got == expected:
        return True
    parts, rest = float_parts(row, result, got, packed)
    wanted, wanted_rest = float_parts(row, result, expected, packed)
    if not parts or rest != wanted_rest:
        return False
    steps = [steps_between(fmt, a, b) for (fmt, a), (_, b) in zip(parts, wanted, strict=True)]
    return all(step is not None and step <= ulps for step in steps)
