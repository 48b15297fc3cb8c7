"""`flash-attn-rocm verify`: run a grid of attention calls through the installed package and judge every result."""

from __future__ import annotations

import argparse
import json
import math
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.progress import track
from rich.table import Table

from flash_attn_rocm import backends, environment, paths
from flash_attn_rocm.archs import load_arch
from flash_attn_rocm.cli.output import check_writable
from flash_attn_rocm.console import make_console
from flash_attn_rocm.errors import BackendChoiceError, InputError
from flash_attn_rocm.kernel_manifest import read_manifest
from flash_attn_rocm.verification import profile, worker
from flash_attn_rocm.verification.cases import Case, plan_cases

_LONGEST_S = 1e6  # far above any case, far below what a wait on a pipe can take


def _seconds(text: str) -> float:
    """A time limit, from an option; NaN fails the comparison."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value <= _LONGEST_S:
        raise argparse.ArgumentTypeError(f"{text} is no time limit; allowed: above 0 to {_LONGEST_S:g} seconds")
    return value


def add_parser(commands: Any) -> None:
    """Add this command to the program's parser."""
    parser = commands.add_parser("verify", help="check results of the installed kernels against float64")
    parser.add_argument(
        "--emulate", metavar="GFX", help="run this GPU's kernels on the emulated GPU (needs no GPU), e.g. gfx1201"
    )
    parser.add_argument(
        "--profile",
        action="store_true",
        help="on the emulated GPU: print the instructions that each kernel executed, by class (counts, not time)",
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the results to this file")
    parser.add_argument("--timeout", metavar="S", type=_seconds, default=300.0, help="seconds for one case (300)")
    parser.add_argument("--filter", metavar="TEXT", default="", help="only cases whose name contains this text")
    parser.add_argument("--list", action="store_true", help="print the names of the cases that would run, and stop")
    parser.set_defaults(run=run)


def results_table(results: list[worker.Result]) -> Table:
    """One row per case."""
    table = Table(title="flash-attn-rocm verify")
    table.add_column("case", no_wrap=True)
    for name in ("max error", "allowed", "LSE error", "time s"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("result")
    for row in results:
        numbers = [
            "-" if math.isnan(value) else text % value
            for text, value in (
                ("%.2e", row.error),
                ("%.2e", row.allowed),
                ("%.2e", row.lse_error),
                ("%.3f", row.time_s),
            )
        ]
        style = "green" if row.status == "passed" else "bold red"
        table.add_row(row.case.name, *numbers, f"[{style}]{row.status}[/{style}]")
    return table


def kernels_not_executed(kernels: list[dict[str, Any]], results: list[worker.Result]) -> list[str]:
    """Names of kernels of kernels.json that no case launched."""
    launched = {name for result in results for name, count in (result.launches or {}).items() if count > 0}
    return [str(kernel["name"]) for kernel in kernels if kernel["name"] not in launched]


def _choose_device() -> str:
    return "cuda" if torch.cuda.is_available() and not environment.emulated_gpus() else "cpu"


def _write_json(path: Path, choice: backends.Choice, results: list[worker.Result], missed: list[str]) -> None:
    passed = not missed and all(result.status == "passed" for result in results)
    rows = [
        {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in asdict(row).items()
        }
        for row in results
    ]
    report = {
        "passed": passed,
        "backend": choice.backend,
        "gfx": choice.gfx,
        "reason": choice.reason,
        "kernels_not_executed": missed,
        "executed": profile.add_profiles(row.executed for row in results),
        "cases": rows,
    }
    try:
        path.write_text(json.dumps(report, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"--json {path}: cannot be written: {error.strerror}") from error


def _choose(device: str) -> backends.Choice:
    """The choice for this device; an error where torch's attention would be verified in place of installed kernels."""
    choice = backends.choice_for(device, 0 if device == "cuda" else None)
    if choice.backend == "ck":
        return choice
    asked, installed = ",".join(environment.emulated_gpus()), sorted(paths.find_manifests())
    if asked or choice.gfx in installed:
        raise BackendChoiceError(
            f"the kernels for {asked or choice.gfx} would not be verified: backend {choice.backend} is chosen "
            f"({choice.reason}). Set FLASH_ATTN_ROCM_BACKEND=ck"
        )
    if installed and os.environ.get("FLASH_ATTN_ROCM_BACKEND") != "sdpa":
        built = "is built for ROCm" if torch.version.hip else "is not a build for ROCm"
        raise BackendChoiceError(
            f"the installed kernels ({', '.join(installed)}) would not be verified: {choice.reason}; torch "
            f"{torch.__version__} {built}. Run with --emulate {installed[0]} to check them without a GPU, or set "
            "FLASH_ATTN_ROCM_BACKEND=sdpa to check torch's attention"
        )
    return choice


def _cases(kernels: list[dict[str, Any]], text: str) -> list[Case]:
    """The cases whose name contains the text."""
    planned = plan_cases(kernels)
    cases = [case for case in planned if text in case.name]
    if not cases:
        raise InputError(
            f"--filter {text!r} matches none of {len(planned)} cases, e.g. {planned[0].name!r}; --list prints them all"
        )
    return cases


def run(arguments: argparse.Namespace) -> int:
    """Run every case; 0 when all pass and every installed kernel was executed, else 1."""
    if arguments.list and (arguments.json or arguments.profile):
        raise InputError("--list runs nothing to report on: give it without --json and --profile")
    if arguments.json:
        check_writable("--json", arguments.json)
    if arguments.emulate:
        os.environ[environment.EMULATE] = load_arch(arguments.emulate, "--emulate").gfx
        paths.hip_library_path()
    device = _choose_device()
    choice = _choose(device)
    kernels: list[dict[str, Any]] = []
    if choice.backend == "ck" and choice.gfx is not None:
        kernels = read_manifest(paths.find_manifests()[choice.gfx])["kernels"]
    if arguments.profile and not environment.emulated_gpus():
        raise InputError("--profile counts what the emulated GPU executes: give --emulate GFX as well")
    cases = _cases(kernels, arguments.filter)
    if arguments.list:
        print("\n".join(case.name for case in cases))
        return 0
    console = make_console()
    where = f"emulated {choice.gfx}" if environment.emulated_gpus() else choice.gfx or device
    console.print(f"backend {choice.backend} on {where} ({choice.reason}); {len(kernels)} kernels", highlight=False)

    context = worker.start_context()
    progress = track(cases, description="cases", console=console, transient=True, disable=not console.is_terminal)
    results = [worker.run_isolated(context, case, device, arguments.timeout) for case in progress]
    console.print(results_table(results))
    for row in results:
        if row.status != "passed":
            console.print(f"{row.case.name}: {row.status}: {row.detail}", style="red", markup=False, highlight=False)
    if arguments.profile:
        console.print(profile.profile_table(profile.add_profiles(row.executed for row in results)))

    missed = [] if arguments.filter else kernels_not_executed(kernels, results)
    for name in missed:
        console.print(f"kernel not executed by any case: {name}", style="red", highlight=False)
    if arguments.json:
        _write_json(arguments.json, choice, results, missed)
    failed = sum(result.status != "passed" for result in results)
    if failed or missed:
        console.print(f"FAILED: {failed} of {len(results)} cases, {len(missed)} kernels not executed", style="bold red")
        return 1
    # A filter leaves kernels out on purpose: then it is not known that all were executed.
    executed = f", all {len(kernels)} kernels executed" if kernels and not arguments.filter else ""
    console.print(f"PASSED: {len(results)} cases{executed}", style="bold green", highlight=False)
    return 0
