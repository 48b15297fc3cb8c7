"""Generates handlers_<family>_<n>.cpp and shapes_<family>.cpp from instruction shapes and isa/<family>.toml.

usage: gen.py --isa isa/gfx12.toml --functions semantics/functions.toml --shapes shapes.txt --out DIR --parts N

A shape is one line of fa-emu-shapes: mnemonic, operand kinds, modifiers, a tab, and an example instruction.
Every shape must have a row in the table; all that have none are listed and the exit code is 1.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROW_SECTIONS = ("vector", "compare", "scalar", "special")
SECTIONS = {"family", "machine", "vector", "compare", "scalar", "special", "waits", "ignore", "trap"}
MACHINE_KEYS = {
    "wave_size",
    "accumulators",
    "workgroup_ids_in_sgprs",
    "scratch_wave_offset",
    "cmpx_writes_mask",
    "target_features",
    "test_kernels",
}
ROW_KEYS = {
    "vector": {"fn", "dst", "src", "vcc", "scalar", "mix", "packed", "immediate", "needs"},
    "compare": {"fn", "src", "needs"},
    "scalar": {"fn", "dst", "src", "scc", "needs"},
    "special": {"fn", "types", "returns", "args", "flow", "exec_dst", "uses", "needs"},
}
VECTOR_TYPES = {"u32": "U32", "s32": "S32", "f32": "F32", "u64": "U64", "s64": "S64", "f64": "F64"}
SCALAR_TYPES = {"u32": "u32", "s32": "s32", "f32": "float", "u64": "u64", "s64": "s64", "k16": "u32", "k16u": "u32"}
FLOATS = {"f32", "f64", "f16", "f16hi", "f16z"}
HALVES = {"f16", "f16hi", "f16z", "b16", "b16z"}
# Modifiers that make another instruction of one name: it has a row with this ending.
ROW_ENDINGS = {"lds": "_lds", "glc": "_rtn", "sc0": "_rtn", "return": "_rtn"}
SDWA_PARTS = {
    "DWORD": "kDword",
    "WORD_0": "kWord0",
    "WORD_1": "kWord1",
    "BYTE_0": "kByte0",
    "BYTE_1": "kByte1",
    "BYTE_2": "kByte2",
    "BYTE_3": "kByte3",
}
SDWA_REST = {"UNUSED_PAD": "kZero", "UNUSED_SEXT": "kSign", "UNUSED_PRESERVE": "kKeep"}
SDWA_MODIFIERS = {"dst_sel", "dst_unused", "src0_sel", "src1_sel"}
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
CONSTANT_CODES |= {"f16x2": "H", "b16x2": "H", "f32x2": "P"}


FUNCTION_KEYS = {"class", "counts", "returns"}
# C++ enumerators of machine/instruction_traits.hpp.
CLASSES = {
    name: f"InstructionClass::k{name.capitalize()}"
    for name in ("matrix", "valu", "lds", "global", "scratch", "scalar", "branch", "wait", "hint")
}
EVENTS = {"vmem_load": "kVmemLoad", "vmem_store": "kVmemStore", "lds": "kLds", "smem": "kSmem"}
FLOWS = {"next": "kNext", "branch": "kBranch", "jump": "kJump", "end": "kEnd", "indirect": "kIndirect"}


class ShapeError(Exception):
    """A shape that the table cannot express; the text says why."""


@dataclass(frozen=True)
class Operand:
    """One operand of a shape: `kind` is v, u, x, off or a text; `half` is l or h for 16-bit halves."""

    kind: str
    half: str
    neg: bool
    absolute: bool


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
    neg, text = text.startswith("-"), text.removeprefix("-")
    absolute, text = text.startswith("|"), text.removeprefix("|")
    kind, dot, half = text.partition(".")
    return Operand(kind, half if dot else "", neg, absolute)


def parse_shape(line: str) -> Shape:
    key, _, example = line.partition("\t")
    mnemonic, _, rest = key.partition(" ")
    operand_text, _, modifier_text = rest.partition(" ")
    operands = tuple(parse_operand(part) for part in operand_text.split(",") if part)
    modifiers = {word.partition(":")[0]: word.partition(":")[2] for word in modifier_text.split()}
    return Shape(key, example, mnemonic, operands, modifiers)


def load_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise SystemExit(f"{path}: {error}") from error


def load_functions(path: Path) -> dict[str, Any]:
    functions = load_toml(path)
    for name, row in functions.items():
        if unknown := set(row) - FUNCTION_KEYS:
            raise SystemExit(f"{path}: {name}: unknown keys {sorted(unknown)}; known: {sorted(FUNCTION_KEYS)}")
        for key, known in (("class", CLASSES), ("counts", EVENTS)):
            if key in row and row[key] not in known:
                raise SystemExit(f"{path}: {name}: {key} is {row[key]!r}; known: {sorted(known)}")
    return functions


def over_base(path: Path, table: dict[str, Any]) -> dict[str, Any]:
    """What a table over another stands for: rows of the base but those that it renames, drops or has itself."""
    base = load_table(path.with_name(f"{table.pop('base')}.toml"))
    renamed, absent = table.pop("renamed", {}), table.pop("absent", [])
    known = {name for section in ROW_SECTIONS for name in base[section]}
    if unknown := {*renamed.values(), *absent} - known:
        raise SystemExit(f"{path}: renamed or absent rows {sorted(unknown)} are not in the base table")
    gone = {*renamed.values(), *absent}
    for section in ROW_SECTIONS:
        rows = {name: row for name, row in base[section].items() if name not in gone}
        rows |= {name: base[section][old] for name, old in renamed.items() if old in base[section]}
        table[section] = rows | table.get(section, {})
    return {**base, **table}


def load_table(path: Path) -> dict[str, Any]:
    """The table of a family, checked; the fuzz kernels of tests/isa are made from the same."""
    table = load_toml(path)
    if "base" in table:
        table = over_base(path, table)
    if unknown := set(table) - SECTIONS:
        raise SystemExit(f"{path}: unknown sections {sorted(unknown)}; known: {sorted(SECTIONS)}")
    if set(table["machine"]) != MACHINE_KEYS:
        raise SystemExit(f"{path}: [machine] has {sorted(table['machine'])}, expected {sorted(MACHINE_KEYS)}")
    for section, keys in ROW_KEYS.items():
        for name, row in table[section].items():
            if unknown := set(row) - keys:
                raise SystemExit(f"{path}: [{section}] {name}: unknown keys {sorted(unknown)}; known: {sorted(keys)}")
    return table


def apply_modifiers(value: str, operand: Operand, type_name: str) -> str:
    if not (operand.neg or operand.absolute):
        return value
    if type_name not in FLOATS:
        raise ShapeError(f"neg or abs on an operand of type {type_name}")
    if operand.absolute:
        value = f"absolute({value})"
    return f"negate({value})" if operand.neg else value


def sdwa_source(shape: Shape, number: int, slot: str, vgpr: bool) -> str:
    """C++ expression of the part of a register that SDWA makes source `number`, or nothing where it is all of it."""
    part = shape.modifiers.get(f"src{number}_sel", "DWORD")
    if part == "DWORD":
        return ""
    return f"sdwa_part<Part::{SDWA_PARTS[part]}>({f'w->v[{slot}]' if vgpr else f'U32(w->s[{slot}])'})"


def with_halves(shape: Shape, typed: Sequence[tuple[str, Operand]]) -> list[tuple[str, Operand]]:
    """Puts the halves that op_sel names into the 16-bit operands, where the text has no .l and .h."""
    flags = re.findall(r"[01]", shape.modifiers.get("op_sel", ""))
    if not flags:
        return list(typed)
    if any(flag == "1" for flag in flags[len(typed) :]):
        raise ShapeError("op_sel of the destination is not emulated")
    result = []
    for (name, operand), flag in zip(typed, flags, strict=False):
        if flag == "1" and name not in HALVES:
            raise ShapeError(f"op_sel of an operand of type {name}")
        half = "h" if flag == "1" else operand.half
        result.append((name, Operand(operand.kind, half, operand.neg, operand.absolute)))
    return result


def vector_source(
    shape: Shape, number: int, index: int, operand: Operand, type_name: str, as_scalar: bool = False
) -> str:
    """C++ expression of a lane-wise source operand, `index` in the text; with DPP source 0 comes from other lanes."""
    dpp = "dpp" in shape.modifiers and number == 0
    slot = f"op->r[{index}]"
    vgpr = operand.kind == "v"
    if dpp and not vgpr:
        raise ShapeError("the source that DPP takes from other lanes is a VGPR")
    source = "dpp." if dpp else ""
    if operand.kind not in ("v", "u", "x"):
        raise ShapeError(f"operand {index} is {operand.kind!r}, expected a register or a constant")
    if type_name == "mask":
        return f"mask_in(w, {slot})"
    if fetched := sdwa_source(shape, number, slot, vgpr):
        if type_name in ("f16", "b16"):
            return apply_modifiers(
                f"widen_f16({fetched})" if type_name == "f16" else f"({fetched} & U32(0xFFFF))", operand, type_name
            )
        if type_name not in ("u32", "s32", "f32"):
            raise ShapeError(f"SDWA of an operand of type {type_name} is not emulated")
        return apply_modifiers(f"bits<{VECTOR_TYPES[type_name]}>({fetched})", operand, type_name)
    if type_name in ("f16", "b16"):
        high = "true" if operand.half == "h" else "false"
        raw = f"{source}half_in(w, {slot}, {high})" if vgpr else f"U32(w->s[{slot}] & 0xFFFF)"
        return apply_modifiers(f"widen_f16({raw})" if type_name == "f16" else raw, operand, type_name)
    if operand.half:
        raise ShapeError(f"operand {index} names a half, but its type is {type_name}")
    if as_scalar and not vgpr:
        return f"scalar_in<{SCALAR_TYPES[type_name]}>(w, {slot})"
    cpp = VECTOR_TYPES[type_name]
    function = "dpp.in" if dpp else "vector_in" if vgpr else "splat_in"
    return apply_modifiers(f"{function}<{cpp}>(w, {slot})", operand, type_name)


def mix_types(shape: Shape, sources: Sequence[Operand]) -> list[tuple[str, Operand]]:
    """Types of V_FMA_MIX sources: op_sel_hi says f16, op_sel which half."""

    def flags(name: str) -> list[bool]:
        text = shape.modifiers.get(name, "[0,0,0]")
        return [digit == "1" for digit in re.findall(r"[01]", text)]

    result = []
    for operand, is_half, is_high in zip(sources, flags("op_sel_hi"), flags("op_sel"), strict=False):
        half = "h" if is_high else "l"
        result.append(
            ("f16", Operand(operand.kind, half, operand.neg, operand.absolute)) if is_half else ("f32", operand)
        )
    return result


def result_modifiers(value: str, shape: Shape, type_name: str, handled: set[str]) -> str:
    for name, text in shape.modifiers.items():
        if name in handled:
            continue
        if type_name in FLOATS and name == "clamp":
            value = f"clamp({value})"
        elif type_name == "f32" and (name, text) in (("mul", "2"), ("mul", "4"), ("div", "2")):
            value = f"{value} * F32({text if name == 'mul' else '0.5'})"
        else:
            raise ShapeError(f"modifier {name}:{text} is not emulated for this instruction")
    return value


def vector_result(shape: Shape, type_name: str, value: str) -> str:
    operand = shape.operands[0]
    if operand.kind != "v":
        raise ShapeError(f"destination is {operand.kind!r}, expected a VGPR")
    if type_name in HALVES:
        raw = value if type_name in ("b16", "b16z") else f"narrow_f16({value})"
        value = f"({raw}) & U32(0xFFFF)" if type_name == "b16z" else raw
    part = shape.modifiers.get("dst_sel", "DWORD")
    if part != "DWORD":
        if VECTOR_TYPES.get(type_name, "U32") not in ("U32", "S32", "F32"):
            raise ShapeError(f"SDWA of a result of type {type_name} is not emulated")
        rest = SDWA_REST[shape.modifiers.get("dst_unused", "UNUSED_PAD")]
        return f"sdwa_out<Part::{SDWA_PARTS[part]}, Rest::{rest}>(w, op->r[0], bits<U32>({value}));"
    if type_name in ("f16", "f16hi", "b16"):
        high = "true" if operand.half == "h" or type_name == "f16hi" else "false"
        return f"half_out(w, op->r[0], {high}, {value});"
    return f"vector_out(w, op->r[0], {value});"


def packed_source(shape: Shape, number: int, type_name: str, high: bool) -> str:
    """One of the two components of a packed operand: op_sel and op_sel_hi say which half each result takes."""
    operand, slot = shape.operands[number + 1], f"op->r[{number + 1}]"
    if operand.kind not in ("v", "u"):
        raise ShapeError(f"operand {number + 1} is {operand.kind!r}, expected a register or a constant")
    default = "1" if high else "0"
    flags = re.findall(r"[01]", shape.modifiers.get("op_sel_hi" if high else "op_sel", ""))
    half = (flags[number] if number < len(flags) else default) == "1"
    neg = re.findall(r"[01]", shape.modifiers.get("neg_hi" if high else "neg_lo", ""))
    if type_name in HALVES:
        flag = str(half).lower()
        raw = f"half_in(w, {slot}, {flag})" if operand.kind == "v" else f"U32(w->s[{slot}] >> {16 * half} & 0xFFFF)"
        value = f"widen_f16({raw})" if type_name == "f16" else raw
    else:
        read = "vector_in" if operand.kind == "v" else "splat_in"
        value = f"{read}<{VECTOR_TYPES[type_name]}>(w, {slot} + {int(half)})"
    negated = number < len(neg) and neg[number] == "1"
    return apply_modifiers(value, Operand(operand.kind, "", negated, False), type_name)


def packed_code(shape: Shape, row: Mapping[str, Any]) -> Code:
    """Instructions on two components, which lie in the halves of a VGPR or in a pair of them."""
    dst, types = row["dst"], row["src"].split()
    reads_old = types[0] == "old"
    types = types[1:] if reads_old else types
    if len(shape.operands) != 1 + len(types):
        raise ShapeError(f"{len(shape.operands)} operands, the row has {1 + len(types)}")
    if shape.operands[0].kind != "v":
        raise ShapeError(f"destination is {shape.operands[0].kind!r}, expected a VGPR")
    handled = {"op_sel", "op_sel_hi", "neg_lo", "neg_hi"}
    results = []
    for high in (False, True):
        values = [packed_source(shape, i, name, high) for i, name in enumerate(types)]
        results.append(result_modifiers(f"sem::{row['fn']}({', '.join(values)})", shape, dst, handled))
    body = [f"const auto {name} = {value};" for name, value in zip(("low", "high"), results, strict=True)]
    if dst in HALVES:
        low, high_half = ("narrow_f16(low)", "narrow_f16(high)") if dst == "f16" else ("low & U32(0xFFFF)", "high")
        body.append(f"vector_out(w, op->r[0], ({low}) | ({high_half} << U32(16)));")
    else:
        body += ["vector_out(w, op->r[0], low);", "vector_out(w, op->r[0] + 1, high);"]
    return Code(tuple(body), "D" + "".join(CONSTANT_CODES[f"{name}x2"] for name in types))


def vector_code(shape: Shape, row: Mapping[str, Any]) -> Code:
    dst_types, src_types = row["dst"].split(), row["src"].split()
    reads_old = src_types[0] == "old"
    src_types = src_types[1:] if reads_old else src_types
    if len(shape.operands) != len(dst_types) + len(src_types):
        raise ShapeError(f"{len(shape.operands)} operands, the row has {len(dst_types) + len(src_types)}")
    sources = shape.operands[len(dst_types) :]
    typed = list(zip(src_types, sources, strict=True))
    typed = mix_types(shape, sources) if row.get("mix") else with_halves(shape, typed)
    first, dpp = len(dst_types), "dpp" in shape.modifiers
    values = [
        vector_source(shape, i, first + i, operand, type_name, i in row.get("scalar", []))
        for i, (type_name, operand) in enumerate(typed)
    ]
    if reads_old:
        values.append(f"vector_in<{VECTOR_TYPES[dst_types[0]]}>(w, op->r[0])")
    if row.get("vcc"):
        values.append("mask_in(w, kVcc)")
    handled = {"dpp", *SDWA_MODIFIERS} | ({"op_sel", "op_sel_hi"} if row.get("mix") else {"op_sel"})
    if immediate := row.get("immediate"):
        handled.add(immediate)
        values.append(f"std::integral_constant<u32, {int(shape.modifiers.get(immediate, '0'), 0)}>{{}}")
    body = ["{", "const Dpp dpp(w, op);", "const DppWrites writes(w, dpp);"] if dpp else []
    if first == 2:
        body.append("S32 lanes{};")
        values.append("lanes")
    call = result_modifiers(f"sem::{row['fn']}({', '.join(values)})", shape, dst_types[0], handled)
    body.append(vector_result(shape, dst_types[0], call))
    if first == 2:
        body.append(f"mask_out(w, op->r[1], {'dpp.written(lanes)' if dpp else 'lanes'});")
    body += ["}"] if dpp else []
    return Code(tuple(body), "D" * first + "".join(CONSTANT_CODES[name] for name, _ in typed))


def compare_code(shape: Shape, row: Mapping[str, Any], writes_exec: bool, writes_mask: bool) -> Code:
    types = row["src"].split()
    first = 1 if writes_mask else 0
    if len(shape.operands) != first + len(types):
        raise ShapeError(f"{len(shape.operands)} operands, expected {first + len(types)}")
    dpp = "dpp" in shape.modifiers
    if unknown := set(shape.modifiers) - {"dpp", *SDWA_MODIFIERS}:
        raise ShapeError(f"modifiers {sorted(unknown)} are not emulated for compares")
    values = [vector_source(shape, i, first + i, shape.operands[first + i], name) for i, name in enumerate(types)]
    call = f"sem::{row['fn']}({', '.join(values)})"
    call = f"dpp.written({call})" if dpp else call
    body = ["const Dpp dpp(w, op);"] if dpp else []
    body += [f"mask_out(w, op->r[0], {call});"] if writes_mask else [f"w->set_exec(collect_mask({call}) & w->exec());"]
    if writes_mask and writes_exec:
        body.append("w->set_exec(scalar_in<LaneMask>(w, op->r[0]));")
    elif writes_mask and shape.operands[0].kind == "x":
        body.append("exec_changed(w);")
    return Code(tuple(body), "D" * first + "".join(CONSTANT_CODES[name] for name in types))


def scalar_code(shape: Shape, row: Mapping[str, Any]) -> Code:
    src_types = row["src"].split()
    reads_old = src_types[0] == "old"
    src_types = src_types[1:] if reads_old else src_types
    first = 1 if row["dst"] else 0
    if len(shape.operands) != first + len(src_types):
        raise ShapeError(f"{len(shape.operands)} operands, the row has {first + len(src_types)}")
    if any(operand.neg or operand.absolute or operand.kind not in ("u", "x") for operand in shape.operands):
        raise ShapeError("operands of scalar instructions are registers or constants without modifiers")
    if shape.modifiers:
        raise ShapeError(f"modifiers {dict(shape.modifiers)} are not emulated for scalar instructions")
    values = [f"scalar_in<{SCALAR_TYPES[name]}>(w, op->r[{first + i}])" for i, name in enumerate(src_types)]
    if reads_old:
        values.append(f"scalar_in<{SCALAR_TYPES[row['dst']]}>(w, op->r[0])")
    if row.get("scc"):
        values.append("w->scc")
    call = f"sem::{row['fn']}({', '.join(values)})"
    statement = f"scalar_out<{SCALAR_TYPES[row['dst']]}>(w, op->r[0], {call});" if first else f"{call};"
    changed = ("exec_changed(w);",) if first and shape.operands[0].kind == "x" else ()
    return Code((statement, *changed), "D" * first + "".join(CONSTANT_CODES[name] for name in src_types))


def special_code(shape: Shape, row: Mapping[str, Any]) -> Code:
    types = row["types"].split()
    if len(shape.operands) != len(types):
        raise ShapeError(f"{len(shape.operands)} operands, the row has {len(types)}")
    uses = row.get("uses", "").split()
    if any(operand.neg or operand.absolute or (operand.half and "halves" not in uses) for operand in shape.operands):
        raise ShapeError("operand modifiers and halves are not emulated for this instruction")
    if unknown := set(shape.modifiers) - {"offen", "idxen", *ROW_ENDINGS, *uses}:
        raise ShapeError(f"modifiers {sorted(unknown)} are not emulated for this instruction")
    kinds = ", ".join(f"'{'-' if operand.kind == 'off' else operand.kind[0]}'" for operand in shape.operands)
    flags = ", ".join(str(name in shape.modifiers).lower() for name in ("offen", "idxen"))
    bits = re.findall(r"[01]", shape.modifiers.get("op_sel", ""))
    op_sel = sum(1 << i for i, bit in enumerate(bits) if bit == "1")
    high = sum(1 << i for i, operand in enumerate(shape.operands) if operand.half == "h")
    flags += f", {op_sel}, {high}" if uses else ""
    arguments = f"Form{{{{{kinds}}}, {flags}}}" + (f", {row['args']}" if "args" in row else "")
    arguments = re.sub(
        r"\b(?=(?:ExecOp|Condition|Half|Fill|AtomicOp|BufferRules)::|Packed|Matrix{)", "sem::", arguments
    )
    call = f"sem::{row['fn']}<{arguments}>(w, op)"
    to_exec = types[:1] == ["dst"] and shape.operands[0].kind == "x"
    if to_exec and not row.get("exec_dst"):
        raise ShapeError("exec as the destination is not emulated for this instruction")
    changed = ("exec_changed(w);",) if to_exec else ()
    statements = {
        "void": (f"{call};", *changed),
        "bool": (f"if (!{call}) return nullptr;", *changed),
        "op": (f"op = {call};", "if (op == nullptr) return nullptr;", "--op;"),
    }
    return Code(statements[row["returns"]], "".join(CONSTANT_CODES[name] for name in types))


def code_of(shape: Shape, table: Mapping[str, Any]) -> Code:
    name = shape.row_name
    if name in table["vector"]:
        row = table["vector"][name]
        return packed_code(shape, row) if row.get("packed") else vector_code(shape, row)
    if name in table["compare"]:
        return compare_code(shape, table["compare"][name], False, True)
    if name.startswith("v_cmpx_") and (plain := "v_cmp_" + name.removeprefix("v_cmpx_")) in table["compare"]:
        return compare_code(shape, table["compare"][plain], True, table["machine"]["cmpx_writes_mask"])
    if name in table["scalar"]:
        return scalar_code(shape, table["scalar"][name])
    if name in table["special"]:
        return special_code(shape, table["special"][name])
    if (
        name in table["waits"]["instructions"]
        or name in table["ignore"]["names"]
        or shape.key in table["ignore"]["shapes"]
    ):
        return Code(None, "")
    if name in table["trap"]["names"]:
        return Code(("return sem::trap<Form{}>(w, op);",), "")
    raise ShapeError("no row for this instruction")


def traits_of(shape: Shape, table: Mapping[str, Any], functions: Mapping[str, Any]) -> str:
    """C++ initializer of the shape's ShapeTraits."""
    name = shape.row_name
    if name in table["vector"] or name in table["compare"] or name.startswith("v_cmpx_"):
        return f"{{{CLASSES['valu']}}}"
    if name in table["scalar"]:
        return f"{{{CLASSES['scalar']}}}"
    if name in table["waits"]["instructions"]:
        return f"{{{CLASSES['wait']}}}"
    if name not in table["special"]:
        flow = "end" if name in table["trap"]["names"] else "next"
        return f"{{{CLASSES['hint']}, Event::kNone, false, Flow::{FLOWS[flow]}}}"
    row = table["special"][name]
    if row["fn"] not in functions:
        raise ShapeError(f"function {row['fn']} has no row in semantics/functions.toml")
    function = functions[row["fn"]]
    event = EVENTS[function["counts"]] if "counts" in function else "kNone"
    returns = str(function.get("returns", False)).lower()
    return f"{{{CLASSES[function['class']]}, Event::{event}, {returns}, Flow::{FLOWS[row.get('flow', 'next')]}}}"


def render_handlers(codes: Sequence[tuple[Shape, Code, str]], family: str, lanes: int, part: int) -> str:
    lines = [
        f"// Handlers of {family} instruction shapes, part {part}. Generated by emulator/gen.py.",
        f"#define EMU_LANES {lanes}",
        '#include "machine/handler.hpp"',
        "",
    ]
    lines += ["namespace emu {", "namespace {", ""]
    rows = []
    for number, (shape, code, traits) in enumerate(codes):
        literal = shape.key.replace("\\", "\\\\").replace('"', '\\"')
        if code.body is None:
            rows.append(f'    {{"{literal}", nullptr, "{code.codes}", {traits}}},')
            continue
        rows.append(f'    {{"{literal}", h{number}, "{code.codes}", {traits}}},')
        lines.append(f"const Op* h{number}(WaveState* state, const Op* op) {{  // {shape.key}")
        if any(re.search(r"\bw\b", statement) for statement in code.body):
            lines.append("  Wave* const w = static_cast<Wave*>(state);")
        lines += [f"  {statement}" for statement in code.body]
        lines += [] if code.body[-1].startswith("return") else ["  NEXT;"]
        lines.append("}")
    lines += ["", "const ShapeRow kRows[] = {", *rows, "};", "", "}  // namespace", ""]
    lines.append(f"void add_{family}_shapes_{part}(std::vector<ShapeRow>& rows) {{")
    lines += ["  rows.insert(rows.end(), std::begin(kRows), std::end(kRows));", "}"]
    return "\n".join([*lines, "", "}  // namespace emu", ""])


def render_waits(waits: Mapping[str, Any]) -> str:
    """C++ initializer of the family's WaitModel: events in the order of enum Event, then the instructions."""
    counters: dict[str, int] = {}
    queues: dict[str, int] = {}
    events = []
    for event in EVENTS:
        row = waits["events"][event]
        counter = counters.setdefault(row["counter"], len(counters))
        queue = queues.setdefault(row["queue"], len(queues)) if "queue" in row else -1
        events.append(f"{{{counter}, {queue}}}")
    instructions = []
    for name, fields in waits["instructions"].items():
        parts = [
            f"{{{counters[counter]}, {{{', '.join(f'{{{first}, {width}}}' for first, width in bits)}}}}}"
            for counter, bits in fields.items()
        ]
        instructions.append(f'{{"{name}", {{{", ".join(parts)}}}}}')
    return f"{{{{{{{', '.join(events)}}}}},\n          {{{(',' + chr(10) + '           ').join(instructions)}}}}}"


def render_registry(family: str, parts: int, waits: Mapping[str, Any]) -> str:
    declarations = "\n".join(f"void add_{family}_shapes_{i}(std::vector<ShapeRow>& rows);" for i in range(parts))
    calls = "\n".join(f"  add_{family}_shapes_{i}(rows);" for i in range(parts))
    return (
        f"// All shapes of {family} built into the library. Generated by emulator/gen.py.\n"
        '#include "machine/family.hpp"\n\nnamespace emu {\n\n'
        f"{declarations}\n\nstd::vector<ShapeRow> shapes_of_{family}() {{\n"
        f"  std::vector<ShapeRow> rows;\n{calls}\n  return rows;\n}}\n\n"
        f"WaitModel waits_of_{family}() {{\n  return {render_waits(waits)};\n}}\n\n"
        "}  // namespace emu\n"
    )


def part_of(shape: Shape, parts: int) -> int:
    """The file of a shape's handler: always the same, so that a new shape changes one file only."""
    return zlib.crc32(shape.key.encode()) % parts


def write_if_changed(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isa", type=Path, required=True)
    parser.add_argument("--functions", type=Path, required=True)
    parser.add_argument("--shapes", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--parts", type=int, required=True, help="number of handler files, compiled in parallel")
    options = parser.parse_args()
    table = load_table(options.isa)
    family, lanes = table["family"], table["machine"]["wave_size"]
    functions = load_functions(options.functions)
    codes: list[tuple[Shape, Code, str]] = []
    failures = []
    for line in options.shapes.read_text().splitlines():
        shape = parse_shape(line)
        try:
            codes.append((shape, code_of(shape, table), traits_of(shape, table, functions)))
        except ShapeError as error:
            failures.append(f"  {shape.key}: {error}\n    for example: {shape.example}")
    if failures:
        print(f"gen.py: {len(failures)} of {len(codes) + len(failures)} shapes cannot be emulated:", file=sys.stderr)
        print("\n".join(failures), file=sys.stderr)
        print(
            f'Add a row to {options.isa} and, where needed, a function in semantics/ (README, "Add an instruction").',
            file=sys.stderr,
        )
        return 1
    options.out.mkdir(parents=True, exist_ok=True)
    for part in range(options.parts):
        write_if_changed(
            options.out / f"handlers_{family}_{part}.cpp",
            render_handlers([code for code in codes if part_of(code[0], options.parts) == part], family, lanes, part),
        )
    write_if_changed(options.out / f"shapes_{family}.cpp", render_registry(family, options.parts, table["waits"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
