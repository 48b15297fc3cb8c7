"""C++ of vector ALU instructions: how operands are fetched, modified and stored; used by gen.py."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gen_shapes import (
    CONSTANT_CODES,
    FLOATS,
    HALVES,
    SCALAR_TYPES,
    VECTOR_TYPES,
    Code,
    Operand,
    Shape,
    ShapeError,
)

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


def apply_modifiers(value: str, operand: Operand, type_name: str) -> str:
    """C++ expression of the operand with its neg and abs. Raises ShapeError for types that have none."""
    if not (operand.neg or operand.absolute):
        return value
    if type_name not in FLOATS:
        raise ShapeError(f"neg or abs on an operand of type {type_name}")
    if operand.absolute:
        value = f"absolute({value})"
    return f"negate({value})" if operand.neg else value


def sdwa_source(shape: Shape, number: int, operand: Operand, slot: str) -> str:
    """C++ expression of the part of a register that SDWA makes source `number`, or nothing where it is all of it."""
    part = shape.modifiers.get(f"src{number}_sel", "DWORD")
    if part == "DWORD":
        return ""
    vgpr = operand.kind == "v"
    sign = str(operand.sign_extended).lower()
    return f"sdwa_part<Part::{SDWA_PARTS[part]}, {sign}>({f'w->v[{slot}]' if vgpr else f'U32(w->s[{slot}])'})"


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
    if fetched := sdwa_source(shape, number, operand, slot):
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
    if operand.sign_extended:
        raise ShapeError(f"operand {index} is sign extended, but not a part of a register")
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
    """C++ expression of the result with clamp and output scale. Raises ShapeError for other modifiers."""
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
    """C++ statement that stores a lane-wise result: a register, a half of it, or the part that SDWA names."""
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
        if row["packed"] == "sources":
            values = [packed_source(shape, int(high), types[high], False)]
        else:
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
    """Code of a [vector] row. Raises ShapeError where operands or modifiers are not the row's."""
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
    """Code of a [compare] row, to a mask operand, to exec or to both."""
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
