"""Tables about kernels for people: the plan with its estimated cost, and what the compiler made of each kernel."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from ck.main_loop import MainLoop, find_main_loops
from ck.manifest import MANIFEST_NAME
from ck.plan import Unit
from flash_attn_rocm.archs import Arch
from scripts.buildlib.commands import run_command
from scripts.buildlib.errors import BadRequestError, BuildError, CommandError
from scripts.buildlib.jobs import estimate_cpu_s, estimate_peak_mib
from scripts.buildlib.progress import format_seconds

OBJDUMP = "FLASH_ATTN_ROCM_LLVM_OBJDUMP"
_REPORT_KEYS = ("vgprs", "vgpr_spills", "sgprs", "sgpr_spills", "scratch_bytes", "lds_bytes")


def make_plan_table(plan: Mapping[Arch, tuple[Unit, ...]], jobs: int) -> Table:
    """One row per translation unit: kernels, estimated CPU seconds and memory; totals below."""
    units = [unit for group in plan.values() for unit in group]
    total = sum(estimate_cpu_s(unit) for unit in units)
    largest = max((estimate_peak_mib(unit) for unit in units), default=0)
    wall = max(total / jobs, max((estimate_cpu_s(unit) for unit in units), default=0.0))
    table = Table(title="Plan", title_justify="left", show_footer=True)
    table.add_column("code object", f"about {format_seconds(wall)} with {jobs} compiles at once", overflow="fold")
    table.add_column("kernels", str(sum(len(unit.specs) for unit in units)), justify="right")
    table.add_column("CPU-s", f"{total:.0f}", justify="right")
    table.add_column("MiB", str(largest * min(jobs, len(units))), justify="right")
    for unit in units:
        table.add_row(unit.name, str(len(unit.specs)), f"{estimate_cpu_s(unit):.0f}", str(estimate_peak_mib(unit)))
    return table


def find_objdump() -> Path | None:
    """llvm-objdump: that of OBJDUMP, else the newest on PATH that knows the GPUs (LLVM 20 or later)."""
    if chosen := os.environ.get(OBJDUMP):
        return Path(chosen)
    names = [f"llvm-objdump-{version}" for version in range(29, 19, -1)] + ["llvm-objdump"]
    return next((Path(found) for name in names if (found := shutil.which(name))), None)


def _disassemble(objdump: Path, code_object: Path) -> str:
    """What llvm-objdump says.

    Raises:
        BuildError: it cannot be run, or failed.
    """
    try:
        return run_command(f"disassembling {code_object.name}", [objdump, "-d", code_object])
    except CommandError as error:
        raise BuildError(f"{error}\nSet {OBJDUMP} to an llvm-objdump of LLVM 20 or later (it is {objdump})") from error


def make_report(out: Path, gfx: str, objdump: Path | None) -> dict[str, Any]:
    """What the compiler made of each kernel of a GPU: the manifest's figures and, with llvm-objdump, the main loop's.

    Raises:
        BadRequestError: the GPU has no built kernels in `out`.
        BuildError: llvm-objdump failed.
    """
    path = out / gfx / MANIFEST_NAME
    if not path.exists():
        raise BadRequestError("--report", gfx, f"GPUs built in {out}", "Build them first: ./pixiw run kernels")
    manifest = json.loads(path.read_text(encoding="utf-8"))
    files = [entry["file"] for entry in manifest["code_objects"]]
    loops: dict[str, MainLoop | None] = {}
    for file in files:
        if objdump:
            loops |= find_main_loops(_disassemble(objdump, path.parent / file))
    kernels = []
    for row in sorted(manifest["kernels"], key=lambda row: (row["code_object"], row["name"])):
        loop = loops.get(row["name"])
        kernel = {"name": row["name"], "code_object": files[row["code_object"]]}
        kernel |= {key: row[key] for key in _REPORT_KEYS}
        kernel["main_loop"] = asdict(loop) if loop else None
        kernels.append(kernel)
    return {
        "gfx": gfx,
        "compiler": manifest["compiler"],
        "code_objects": {entry["file"]: entry["bytes"] for entry in manifest["code_objects"]},
        "kernels": kernels,
    }


def make_report_table(reports: list[dict[str, Any]]) -> Table:
    """One row per built kernel: registers, spills, scratch, LDS, and scratch instructions in the main loop ("-": none
    found); the code object's bytes in the first row of each."""
    table = Table(title="Kernels", title_justify="left")
    table.add_column("kernel", overflow="fold", min_width=52)
    for heading in ("VGPR", "spill", "SGPR", "spill", "scratch", "LDS", "in loop", "file bytes"):
        table.add_column(heading, justify="right")
    for report in reports:
        seen: set[str] = set()
        for row in report["kernels"]:
            file = row["code_object"]
            size = "" if file in seen else str(report["code_objects"][file])
            seen.add(file)
            in_loop = str(row["main_loop"]["scratch"]) if row["main_loop"] else "-"
            table.add_row(row["name"], *(str(row[key]) for key in _REPORT_KEYS), in_loop, size)
        table.caption = f"compiler: {report['compiler']}"
    return table
