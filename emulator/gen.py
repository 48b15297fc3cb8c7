"""Generates handlers_<family>_<n>.cpp and shapes_<family>.cpp from instruction shapes and isa/<family>.toml.

usage: gen.py --isa isa/gfx12.toml --functions semantics/functions.toml --shapes shapes.txt --out DIR --parts N

A shape is one line of fa-emu-shapes: mnemonic, operand kinds, modifiers, a tab, and an example instruction.
Every shape must have a row in the table; all that have none are listed and the exit code is 1.
"""

from __future__ import annotations

import argparse
import re
import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gen_shapes import CONSTANT_CODES, ROW_ENDINGS, SCALAR_TYPES, Code, Shape, ShapeError, parse_shape
from gen_tables import CLASSES, EVENTS, FLOWS, load_functions, load_table
from gen_vector import compare_code, packed_code, vector_code


def scalar_code(shape: Shape, row: Mapping[str, Any]) -> Code:
    """Code of a [scalar] row. Raises ShapeError where the operands or modifiers are not the row's."""
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
    """Code of a [special] row: a call with the shape's Form. Raises ShapeError for what the row does not express."""
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
    """Code of any shape. Raises ShapeError where the table has no row for it or the row does not fit."""
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
    if is_trap(shape, table):
        return Code(("return sem::trap<Form{}>(w, op);",), "")
    raise ShapeError("no row for this instruction")


def is_trap(shape: Shape, table: Mapping[str, Any]) -> bool:
    """Whether a wave that reaches the instruction is stopped."""
    return shape.row_name in table["trap"]["names"] or shape.key in table["trap"]["shapes"]


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
        flow = "end" if is_trap(shape, table) else "next"
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
    if rows:
        lines += ["", "const ShapeRow kRows[] = {", *rows, "};"]
    lines += ["", "}  // namespace", ""]
    if rows:
        lines.append(f"void add_{family}_shapes_{part}(std::vector<ShapeRow>& rows) {{")
        lines += ["  rows.insert(rows.end(), std::begin(kRows), std::end(kRows));", "}"]
    else:  # none of the kernels is for this family
        lines.append(f"void add_{family}_shapes_{part}(std::vector<ShapeRow>&) {{}}")
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
        widths = [
            sum(width for _, width in fields.get(row["counter"], [])) for fields in waits["instructions"].values()
        ]
        events.append(f"{{{counter}, {queue}, {(1 << max(widths)) - 1}}}")
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
    """Keep the time of a file whose text stays the same, so that it is not compiled again."""
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
