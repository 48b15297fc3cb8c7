"""`flash-attn-rocm tune`: time CK kernels and torch's attention on this card, and let the faster one run."""

from __future__ import annotations

import argparse
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from flash_attn_rocm import __version__, environment, policy
from flash_attn_rocm.backends import choice_for
from flash_attn_rocm.benchmark import compare, report
from flash_attn_rocm.benchmark.tuning import disagreeing, tune
from flash_attn_rocm.cli import shapes
from flash_attn_rocm.cli.output import check_writable
from flash_attn_rocm.console import make_console
from flash_attn_rocm.errors import InputError

SEQLENS = (1024, 4096, 16384)


def add_parser(commands: Any) -> None:
    """Add this command to the program's parser."""
    parser = commands.add_parser("tune", help="measure which backend is faster on this card, and let it run")
    shapes.add_options(parser, SEQLENS)
    parser.add_argument(
        "--output",
        metavar="FILE",
        type=Path,
        help="policy file to write, or to add the decisions to (the user's; `info` names it)",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the decisions, write nothing")
    parser.set_defaults(run=run)


def _gpu(device: torch.device) -> str:
    """The AMD GPU of a device.

    Raises:
        InputError: it has none.
    """
    os.environ.pop(environment.BACKEND, None)  # it would decide in place of the measurement
    choice = choice_for(device.type, device.index)
    if choice.gfx is None:
        raise InputError(f"tune chooses between CK kernels and torch's attention on an AMD GPU: {choice.reason}")
    return choice.gfx


def run(arguments: argparse.Namespace) -> int:
    """Measure, print and write."""
    console = make_console(highlight=False)
    problems, device = shapes.problems(arguments), shapes.device(arguments)
    emulated = bool(environment.emulated_gpus())
    if emulated and not (arguments.output or arguments.dry_run):
        raise InputError(
            "the times of an emulated GPU mean nothing, and are not written to the user's file: give --dry-run, or "
            "--output FILE to see such a file"
        )
    path = arguments.output or policy.user_file()
    tables = policy.read(path)  # a file that is no policy is found before minutes of measuring, and never written over
    if arguments.output:
        check_writable("--output", path)
    gfx = _gpu(device)
    now = {direction: policy.table_rule(gfx, direction).backend for direction in policy.DIRECTIONS}
    if "forward" not in shapes.directions(arguments):
        now["forward"] = policy.rule_for(gfx, "forward").backend
    machine = report.describe_machine(device, ())
    date = datetime.now(UTC).date().isoformat()
    where = f"{compare.machine_name({'machine': machine})}, flash-attn-rocm {__version__}, {date}"
    decisions = tune(
        problems,
        shapes.directions(arguments),
        now,
        (device, shapes.effort(arguments), where),
        lambda text: console.print(text, style="dim", markup=False),
    )
    replaced = [d.direction for d in decisions if (gfx, d.direction) in tables]
    for decision in decisions:
        console.print(f"{gfx} {decision.direction}: {decision.backend} ({decision.evidence})", markup=False)
        if shapes_apart := disagreeing(decision):
            console.print(
                f"  the other backend is faster for {', '.join(shapes_apart)}: one choice serves all shapes, so "
                "tune with those that you run",
                markup=False,
            )
        tables[gfx, decision.direction] = decision.as_table()
    if arguments.dry_run:
        return 0
    policy.write(path, tables)
    instead = f" in place of its rules for {gfx} {' and '.join(replaced)}" if replaced else ""
    console.print(
        f"written to {path}{instead}: processes that start now follow it; {environment.BACKEND} overrides it, and "
        "deleting the file brings the package's table back",
        markup=False,
    )
    return 0
