"""`flash-attn-rocm bench`: attention methods against each other on this GPU, each checked before it is timed."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from flash_attn_rocm.benchmark import compare, plot, report
from flash_attn_rocm.benchmark.methods import METHODS, Method
from flash_attn_rocm.benchmark.run import run as run_methods
from flash_attn_rocm.cli import shapes
from flash_attn_rocm.cli.output import check_writable
from flash_attn_rocm.console import make_console
from flash_attn_rocm.errors import InputError

SCHEMA_FILE = Path(__file__).parent.parent / "schemas" / "bench.json"


def add_parser(commands: Any) -> None:
    """Add this command to the program's parser."""
    parser = commands.add_parser("bench", help="time attention methods against each other on this GPU")
    shapes.add_options(parser)
    names = [method.name for method in METHODS]
    parser.add_argument("--methods", metavar="NAME", nargs="+", choices=names, help=f"of {', '.join(names)} (all)")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the results to this file")
    parser.add_argument("--plot", metavar="FILE", type=Path, help="draw them as a PNG (needs matplotlib)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--compare", metavar="FILE", type=Path, nargs=2, help="show two such files side by side")
    form.add_argument("--schema", action="store_true", help="print the JSON Schema of such a file, which explains it")
    parser.set_defaults(run=run)


def _chosen(names: list[str] | None) -> list[Method]:
    return [method for method in METHODS if names is None or method.name in names]


def run(arguments: argparse.Namespace) -> int:
    """Measure and print; 1 where a method's result is wrong, one raised, or none could be measured."""
    console = make_console(highlight=False)
    if arguments.schema:
        print(SCHEMA_FILE.read_text(encoding="utf-8"), end="")
        return 0
    if arguments.compare:
        if arguments.json or arguments.plot:
            raise InputError("--compare measures nothing to write: give it without --json and --plot")
        first, second = (report.read(path) for path in arguments.compare)
        console.print(compare.compare(first, second))
        return 0
    if arguments.plot:
        plot.need_matplotlib()  # before minutes of measuring
    for option in ("json", "plot"):
        if path := getattr(arguments, option):
            check_writable(f"--{option}", path)
    problems, device, methods = shapes.problems(arguments), shapes.device(arguments), _chosen(arguments.methods)
    machine = report.describe_machine(device, methods)
    console.print(f"{compare.machine_name({'machine': machine})}; {problems[0].name} and so on", markup=False)
    rows = run_methods(
        methods,
        problems,
        shapes.directions(arguments),
        device,
        shapes.effort(arguments),
        lambda text: console.print(text, style="dim", markup=False),
    )
    document = report.make_document(machine, rows)
    if arguments.json:
        report.write(arguments.json, json.dumps(document, indent=1, allow_nan=False) + "\n")
    if arguments.plot:
        plot.draw(document, arguments.plot)
    for title, table in report.tables(document):
        console.print(title)
        console.print(table)
    for line in report.remarks(document):
        console.print(line, markup=False)
    nothing = not any(row.status == "ok" for row in rows)
    return 1 if nothing or any(row.status in ("wrong", "failed") for row in rows) else 0
