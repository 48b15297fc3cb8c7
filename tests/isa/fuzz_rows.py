"""Which vector and scalar ALU instructions an emulator table has, and how a fuzz kernel of each gets its operands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emulator.gen_tables import load_table

BITS = {"u32": 32, "s32": 32, "f32": 32, "u64": 64, "s64": 64, "f64": 64, "f16": 16, "f16hi": 16, "b16": 16}
BITS |= {"u32x2": 64, "mask": 1, "k16": 16, "k16u": 16, "f16z": 16, "b16z": 16, "f32x2": 64, "f16x2": 32, "b16x2": 32}
BITS |= {"b32": 32, "b64": 64, "": 0}
ACCUMULATOR_MOVES = ("v_accvgpr_",)  # their operands are other registers, and the pseudo-code has no text for them
LITERAL32, LITERAL16 = 0x40490FDB, 0x8765
OP_SEL, OP_SEL_HI = (1, 0, 0), (1, 0, 1)  # of the mixed-precision instructions: f16 high half, f32, f16 low half


@dataclass(frozen=True)
class Row:
    """One instruction. `sources` are types in the order of the text; `results` are the kinds of kernels it gets: d (its
    destination), mask (lane mask), scc, exec."""

    name: str
    section: str
    destination: str
    sources: tuple[str, ...]
    results: tuple[str, ...]
    reads_vcc: bool = False
    mixed: bool = False
    literal: int = -1  # which source is a 32-bit constant
    reads_old: bool = False
    needs: str = ""  # generation that test kernels must ask for

    @property
    def kernels(self) -> list[tuple[str, str]]:
        """(kernel name, kind of result)."""
        return [(f"fuzz_{self.name}" + ("" if kind == "d" else f"_{kind}"), kind) for kind in self.results]

    @property
    def is_scalar(self) -> bool:
        return self.section in ("scalar", "exec")


class RowError(Exception):
    """A row whose operands the fuzz kernels cannot express."""


def vector_row(name: str, row: dict[str, Any]) -> Row:
    types, sources = row["dst"].split(), row["src"].split()
    reads_old = sources[0] == "old"
    sources = sources[1:] if reads_old else sources
    if row.get("packed"):
        types, sources = [f"{types[0]}x2"], [f"{kind}x2" for kind in sources]
    if unknown := {*types, *sources} - set(BITS):
        raise RowError(f"{name}: operand types {sorted(unknown)}; known: {sorted(BITS)}")
    literal = 1 if "mk_f" in name else 2 if "ak_f" in name else -1
    results = ("d", "mask") if types[1:] == ["mask"] else ("d",)
    return Row(
        name,
        "vector",
        types[0],
        tuple(sources),
        results,
        bool(row.get("vcc")),
        bool(row.get("mix")),
        literal,
        reads_old,
        row.get("needs", ""),
    )


def scalar_row(name: str, row: dict[str, Any]) -> Row:
    sources = tuple(row["src"].split())
    reads_old = sources[0] == "old"
    results = (("d",) if row["dst"] else ()) + (("scc",) if row.get("scc") else ())
    sources = sources[1:] if reads_old else sources
    return Row(name, "scalar", row["dst"], sources, results, reads_old=reads_old, needs=row.get("needs", ""))


def load_rows(table: Path) -> Iterator[Row]:
    """The rows that the fuzz kernels cover: all but [special], except those that change exec by a scalar operation."""
    rows = load_table(table)
    for name, row in rows["vector"].items():
        if name.startswith(ACCUMULATOR_MOVES):
            continue
        yield vector_row(name, row)
    for name, row in rows.get("compare", {}).items():
        sources = tuple(row["src"].split())
        needs = row.get("needs", "")
        yield Row(name, "compare", "", sources, ("mask",), needs=needs)
        yield Row(name.replace("v_cmp_", "v_cmpx_"), "compare", "", sources, ("exec",), needs=needs)
    for name, row in rows["scalar"].items():
        yield scalar_row(name, row)
    for name in rows["special"]:
        if "_saveexec_" in name or "_wrexec_" in name:
            kind = "u64" if name.endswith("b64") else "u32"
            yield Row(name, "exec", kind, (kind,), ("d", "scc", "exec"))


def other_rows(table: Path) -> set[str]:
    """Rows of [special] that belong to the vector or scalar ALU but have no fuzz kernel."""
    data = load_table(table)
    names = {*data["special"], *data["vector"]}
    covered = {row.name for row in load_rows(table)}
    not_alu = ("s_load", "s_buffer", "s_branch", "s_cbranch", "s_barrier", "s_endpgm", "s_store", "s_dcache")
    return {n for n in names if n.startswith(("v_", "s_")) and not n.startswith(not_alu)} - covered
