"""Writes the fuzz kernels of a family: one kernel per result of each ALU instruction, operands in registers.

python -m tests.isa.fuzz_assembly --isa emulator/isa/gfx12.toml --out build/fuzz.s

A kernel reads sources 0 to 2 through pointers 1 to 3, the old destination through pointer 4 and a flag (vcc or scc)
through pointer 5, per lane, and stores its result through pointer 0. Scalar instructions read the first lane's.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from emulator.gen_tables import load_table
from tests.isa.fuzz_rows import BITS, LITERAL16, LITERAL32, OP_SEL, OP_SEL_HI, Row, load_rows

ARGUMENT_BYTES = 48


@dataclass(frozen=True)
class Target:
    """How a family writes lane masks and halves."""

    wave_size: int
    true16: bool
    cmpx_writes_mask: bool

    @property
    def vcc(self) -> str:
        return "vcc_lo" if self.wave_size == 32 else "vcc"

    @property
    def exec(self) -> str:
        return "exec_lo" if self.wave_size == 32 else "exec"

    @property
    def move(self) -> str:
        return "s_mov_b32" if self.wave_size == 32 else "s_mov_b64"

    @property
    def saved(self) -> str:
        return "s30" if self.wave_size == 32 else "s[30:31]"


def register(first: int, bits: int, letter: str = "v") -> str:
    return f"{letter}[{first}:{first + 1}]" if bits == 64 else f"{letter}{first}"


def vector_operands(row: Row, target: Target) -> Iterator[str]:
    """Source operands in text order."""
    slot = 4
    for position, kind in enumerate(row.sources):
        if position == row.literal:
            yield f"0x{LITERAL32:x}"
            continue
        half = ".l" if target.true16 and kind in ("f16", "b16") else ""
        yield target.vcc if kind == "mask" else register(slot, BITS[kind]) + half
        slot += 2


def load_vector_sources(row: Row, target: Target) -> Iterator[str]:
    index = 0
    for position, kind in enumerate(row.sources):
        if position == row.literal:
            continue
        yield f"LOAD_OPERAND {index}, {max(32, BITS[kind])}"
        if kind == "mask":
            yield f"v_cmp_ne_u32 {target.vcc}, 0, v{4 + 2 * index}"
        index += 1
    if row.reads_vcc:
        yield "LOAD_OPERAND 4, 32"
        yield f"v_cmp_ne_u32 {target.vcc}, 0, v12"


def vector_instruction(row: Row, target: Target) -> str:
    bits = BITS[row.destination]
    half = ".l" if target.true16 and row.destination in ("f16", "b16") and not row.mixed else ""
    operands = [register(16, bits) + half, *([target.vcc] if "mask" in row.results else [])]
    text = f"{row.name} " + ", ".join([*operands, *vector_operands(row, target)])
    if row.mixed:
        text += f" op_sel:[{','.join(map(str, OP_SEL))}] op_sel_hi:[{','.join(map(str, OP_SEL_HI))}]"
    return text


def store(bits: int) -> str:
    return f"STORE_RESULT {64 if bits == 64 else 32}"


def vector_kernel(row: Row, result: str, target: Target) -> Iterator[str]:
    bits = BITS[row.destination]
    yield f"LOAD_OPERAND 3, {max(32, bits)}"
    yield "v_mov_b32 v16, v10"
    if bits == 64:
        yield "v_mov_b32 v17, v11"
    yield from load_vector_sources(row, target)
    yield vector_instruction(row, target)
    if result == "mask":
        yield f"v_cndmask_b32 v16, 0, 1, {target.vcc}"
    yield store(bits if result == "d" else 32)


def compare_kernel(row: Row, result: str, target: Target) -> Iterator[str]:
    """v_cmp gives vcc. v_cmpx gives exec, which becomes vcc before all lanes are active again."""
    yield from load_vector_sources(row, target)
    operands = ", ".join(vector_operands(row, target))
    if result == "mask":
        yield f"{row.name} {target.vcc}, {operands}"
    else:
        yield f"{row.name} {target.vcc}, {operands}" if target.cmpx_writes_mask else f"{row.name} {operands}"
        yield f"{target.move} {target.vcc}, {target.exec}"
        yield f"{target.move} {target.exec}, -1"
    yield f"v_cndmask_b32 v16, 0, 1, {target.vcc}"
    yield store(32)


def scalar_operand(kind: str, first: int) -> str:
    return f"0x{LITERAL16:x}" if kind.startswith("k16") else register(first, BITS[kind], "s")


def scalar_kernel(row: Row, result: str, target: Target) -> Iterator[str]:
    for index, first in ((0, 16), (1, 18), (3, 22)):
        yield f"LOAD_OPERAND {index}, 64"
        for word in (0, 1):
            yield f"v_readfirstlane_b32 s{first + word}, v{4 + 2 * index + word}"
    yield "LOAD_OPERAND 4, 32"
    yield "v_readfirstlane_b32 s20, v12"
    yield "s_cmp_lg_u32 s20, 0"
    if row.section == "exec":  # the second operand is exec
        yield f"{target.move} {target.exec}, {register(18, 64 if target.wave_size == 64 else 32, 's')}"
    operands = [register(22, BITS[row.destination], "s")] if row.destination else []
    operands += [scalar_operand(kind, 16 + 2 * position) for position, kind in enumerate(row.sources)]
    yield f"{row.name} " + ", ".join(operands)
    if result == "scc":
        yield "s_cselect_b32 s22, 1, 0"
        yield "s_mov_b32 s23, 0"
    if result == "exec":
        yield f"{target.move} {register(22, 64 if target.wave_size == 64 else 32, 's')}, {target.exec}"
    if row.section == "exec":
        yield f"{target.move} {target.exec}, -1"
    yield "v_mov_b32 v16, s22"
    yield "v_mov_b32 v17, s23"
    yield store(64)


def render(rows: list[Row], target: Target) -> str:
    lines = ["// Fuzz kernels. Generated by tests/isa/fuzz_assembly.py.", '.include "kernel.inc"']
    for row in rows:
        lines += [f".ifdef HAS_{row.needs}"] if row.needs else []
        for kernel, result in row.kernels:
            body = scalar_kernel if row.is_scalar else compare_kernel if row.section == "compare" else vector_kernel
            lines += [f"KERNEL {kernel}", "  LANE_OFFSETS", *(f"  {line}" for line in body(row, result, target))]
            lines.append(f"END_KERNEL {kernel}, args={ARGUMENT_BYTES}")
        lines += [".endif"] if row.needs else []
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isa", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    machine = load_table(options.isa)["machine"]
    target = Target(
        machine["wave_size"], "real-true16" in machine["target_features"], bool(machine["cmpx_writes_mask"])
    )
    options.out.write_text(render(list(load_rows(options.isa)), target))


if __name__ == "__main__":
    main()
