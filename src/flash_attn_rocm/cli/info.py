"""`flash-attn-rocm info`: what is installed, what would run and why, and what is wrong."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flash_attn_rocm.diagnostics import Info, info

SCHEMA_FILE = Path(__file__).parent.parent / "schemas" / "info.json"


def add_parser(commands: Any) -> None:
    """Add this command to the program's parser."""
    parser = commands.add_parser(
        "info",
        help="report what is installed, what would run and why",
        epilog="exit code: 0; 1 where a problem of severity error is reported, with --json too",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the report as JSON")
    form.add_argument("--schema", action="store_true", help="print the JSON Schema of that report, which explains it")
    parser.set_defaults(run=run)


def _gpu_lines(report: Info) -> Iterator[str]:
    for row in report.gpus:
        index = "" if row["index"] is None else f" {row['index']}"
        what = " ".join(filter(None, (row["name"], row["gfx"] and f"({row['gfx']})")))
        kernels = "" if not row["gfx"] else "; kernels exist" if row["kernels_exist"] else "; no kernels exist for it"
        yield f"GPU{index}, by {row['found_by']}: {what}{kernels}"
    if not report.gpus:
        yield "GPU: none found"


def _hip_lines(report: Info) -> Iterator[str]:
    if path := report.hip.get("path"):
        yield f"HIP runtime in use: {path} {report.hip['version']}{' (emulated)' if report.hip['emulated'] else ''}"
    for row in report.hip["installed"]:
        yield f"HIP runtime installed: {row['path']} ({row['where']})"


def _kernel_lines(report: Info) -> Iterator[str]:
    for gfx, kernels in report.kernels.items():
        dims = ", ".join(str(dim) for dim in kernels["head_dims"])
        yield (
            f"kernels for {gfx}: {kernels['kernels']} ({kernels['profile']}; head dims {dims}; "
            f"{', '.join(kernels['dtypes'])}; {kernels['compiler']}) in {Path(kernels['path']).parent}"
        )
    if not report.kernels:
        yield "kernels: none installed"


def _run_lines(report: Info) -> Iterator[str]:
    for row in report.runs:
        gpu = f" ({row['gfx']})" if row["gfx"] else ""
        covered = "; ".join(f"{dtype} with head dims {dims}" for dtype, dims in row["head_dims"].items())
        backend = row["backend"] or "nothing runs"
        call = "" if row["call"] == "every call" else f", {row['call']}"
        yield f"on {row['device']}{gpu}{call}: {backend}{covered and f' ({covered})'}, because: {row['reason']}"


def _lines(report: Info) -> Iterator[str]:
    yield from (f"{name}: {value}" for name, value in report.packages.items())
    yield from (f"{name}={value}" for name, value in report.environment.items())
    yield f"host library: {report.library['path']} {report.library['version'] or '(not loaded)'}"
    yield from _hip_lines(report)
    yield from _gpu_lines(report)
    yield from _kernel_lines(report)
    exists = "" if report.policy["user_file_exists"] else " (none)"
    yield f"user's policy: {report.policy['user_file']}{exists}"
    for rule in report.policy["rules"]:
        yield f"policy of {rule['gfx']}, {rule['direction']}: {rule['backend']} ({rule['source']}: {rule['evidence']})"
    yield from _run_lines(report)
    for problem in report.problems:
        yield f"{problem['severity']}: {problem['problem']}"
        yield f"  fix: {problem['fix']}"
    if not report.problems:
        yield "problems: none found"


def run(arguments: argparse.Namespace) -> int:
    """Print the report; 1 where it has an error, 0 with nothing worse than warnings."""
    if arguments.schema:
        print(SCHEMA_FILE.read_text(encoding="utf-8"), end="")
        return 0
    report = info()
    print(json.dumps(report.as_dict(), indent=2) if arguments.json else "\n".join(_lines(report)))
    return int(any(problem["severity"] == "error" for problem in report.problems))
