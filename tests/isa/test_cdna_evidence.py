"""gfx9: no [special] row without a test kernel that runs the instruction; test_pcode.py compares the other sections."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import ROOT
from tests.isa import test_cdna_lanes, test_cdna_lds, test_cdna_memory, test_mfma
from tests.isa.cdna import GPUS
from tests.isa.fuzz_rows import load_rows

TABLE = ROOT / "emulator/isa/gfx9.toml"
MODULES = {"memory": test_cdna_memory, "lds": test_cdna_lds, "matrix": test_mfma, "lanes": test_cdna_lanes}


def row_name(text: str) -> str:
    """The row of an instruction: its name without the encoding, with the ending that a modifier asks for."""
    words = text.split()
    name = re.sub(r"_(e32|e64|dpp|sdwa)$", "", words[0])
    if "_atomic_" in name and {"glc", "sc0"} & set(words):
        return f"{name}_rtn"
    return f"{name}_lds" if "lds" in words else name


def instructions(emulator: Path, code: Path, kernels: set[str]) -> Iterator[str]:
    """Rows of the instructions of these kernels, from the listing that is installed for their code object."""
    listing = emulator / "decoded" / f"{hashlib.sha256(code.read_bytes()).hexdigest()}.txt"
    found: set[str] = set()
    kernel = ""
    for line in listing.read_text().splitlines():
        if line.startswith("@"):
            kernel = line.split()[1]
            found.add(kernel)
        elif kernel in kernels:
            yield row_name(line.partition("\t")[2])
    assert kernels <= found, f"{code.name} has no {sorted(kernels - found)}"


def test_every_special_row_is_run(emulator: Path, isa_kernels: Path) -> None:
    run: set[str] = set()
    for gfx in GPUS:
        for name, module in MODULES.items():
            run |= set(instructions(emulator, isa_kernels / f"{gfx}_{name}.co", module.kernels(gfx)))
    fuzzed = {kernel for row in load_rows(TABLE) if row.section == "exec" for kernel, _ in row.kernels}
    run |= set(instructions(emulator, isa_kernels / "gfx950_fuzz.co", fuzzed))
    special = set(tomllib.loads(TABLE.read_text())["special"])
    assert sorted(special - run) == []
