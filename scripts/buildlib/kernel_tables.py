"""Tables about kernels for people: the plan with its estimated cost, and what the compiler made of each kernel."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from rich.table import Table

from ck.manifest import MANIFEST_NAME
from ck.plan import Unit
from flash_attn_rocm.archs import Arch
from scripts.buildlib.errors import BadRequestError
from scripts.buildlib.jobs import estimate_cpu_s, estimate_peak_mib
from scripts.buildlib.progress import format_seconds


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


def make_report_table(out: Path, gfxs: list[str]) -> Table:
    """One row per built kernel: registers, spills, scratch, LDS; the code object's bytes in the first row of each.

    Raises:
        BadRequestError: a GPU has no built kernels in `out`.
    """
    table = Table(title="Kernels", title_justify="left")
    table.add_column("kernel", overflow="fold", min_width=52)
    for heading in ("VGPR", "spill", "SGPR", "spill", "scratch", "LDS", "file bytes"):
        table.add_column(heading, justify="right")
    for gfx in gfxs:
        path = out / gfx / MANIFEST_NAME
        if not path.exists():
            raise BadRequestError("--report", gfx, f"GPUs built in {out}", "Build them first: ./pixiw run kernels")
        manifest = json.loads(path.read_text(encoding="utf-8"))
        seen: set[int] = set()
        for row in sorted(manifest["kernels"], key=lambda row: (row["code_object"], row["name"])):
            index = row["code_object"]
            size = "" if index in seen else str(manifest["code_objects"][index]["bytes"])
            seen.add(index)
            keys = ("vgprs", "vgpr_spills", "sgprs", "sgpr_spills", "scratch_bytes", "lds_bytes")
            table.add_row(row["name"], *(str(row[key]) for key in keys), size)
        table.caption = f"compiler: {manifest['compiler']}"
    return table
