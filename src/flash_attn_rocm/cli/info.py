"""`flash-attn-rocm info`: what is installed, what would run and why."""

from __future__ import annotations

import argparse
import json
from typing import Any

from flash_attn_rocm.diagnostics import Info, info


def add_parser(commands: Any) -> None:
    """Add this command to the program's parser."""
    parser = commands.add_parser("info", help="report what is installed, what would run and why")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.set_defaults(run=run)


def _lines(report: Info) -> list[str]:
    lines = [f"{name}: {value}" for name, value in report.packages.items()]
    lines += [f"{name}={value}" for name, value in report.environment.items()]
    lines.append(f"host library: {report.library['path']} {report.library.get('version', '(not loaded)')}")
    if path := report.library.get("hip", {}).get("path"):
        lines.append(f"HIP runtime: {path} {report.library['hip']['version']}")
    for gfx, kernels in report.kernels.items():
        dims = ", ".join(str(dim) for dim in kernels["head_dims"])
        lines.append(
            f"kernels for {gfx}: {kernels['kernels']} ({kernels['profile']}; head dims {dims}; "
            f"{', '.join(kernels['dtypes'])}; {kernels['compiler']})"
        )
    if not report.kernels:
        lines.append("kernels: none installed")
    for row in report.runs:
        gpu = f" ({row['gfx']})" if row["gfx"] else ""
        lines.append(f"on {row['device']}{gpu}: {row['backend'] or 'nothing runs'}, because: {row['reason']}")
    lines += [f"problem: {problem}" for problem in report.problems]
    return lines


def run(arguments: argparse.Namespace) -> int:
    """Print the report; problems are part of it, not a failure of the command."""
    report = info()
    print(json.dumps(report.as_dict(), indent=2) if arguments.json else "\n".join(_lines(report)))
    return 0
