"""The results of a benchmark as a JSON document (schemas/bench.json), and as tables."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from flash_attn_rocm import __version__, environment
from flash_attn_rocm.backends import gpu_name
from flash_attn_rocm.benchmark.clocks import State, read_state
from flash_attn_rocm.benchmark.methods import REFERENCE, Method
from flash_attn_rocm.benchmark.run import DIRECTIONS, Row
from flash_attn_rocm.errors import InputError
from flash_attn_rocm.inspection.problems import reported_variables

SCHEMA = 1
NOTE = (
    "Clocks and power are read right after the runs of a row and are never set: what the machine's power settings, "
    "temperature and other users make of them is part of the result. Where the GPU is done with a call sooner than the "
    "host with launching it, the time is the host's."
)
_EMULATED_NOTE = " These are times of the EMULATED GPU: they say nothing about a card."


def describe_machine(device: torch.device, methods: Iterable[Method]) -> dict[str, Any]:
    """The environment block of a report."""
    on_gpu = device.type == "cuda"
    amd = on_gpu and torch.version.hip is not None
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device.type,
        "gpu": torch.cuda.get_device_name(device) if on_gpu else None,
        "gfx": gpu_name(torch.cuda.current_device() if device.index is None else device.index) if amd else None,
        "emulated": list(environment.emulated_gpus()),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "hip": torch.version.hip,
        "cuda": torch.version.cuda,
        "package": __version__,
        "methods": {method.name: {"title": method.title, "version": method.version()} for method in methods},
        "variables": reported_variables(os.environ),
        "idle": asdict(read_state(device)),
    }


def _reference_of(row: Row, rows: Iterable[Row]) -> Row | None:
    wanted = (row.direction, row.problem, REFERENCE.name)
    return next((other for other in rows if (other.direction, other.problem, other.method) == wanted), None)


def make_document(machine: dict[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
    """The document, JSON-able."""
    note = NOTE + (_EMULATED_NOTE if machine["emulated"] else "")
    results = [row.as_dict(_reference_of(row, rows)) for row in rows]
    for result in results:  # JSON has no infinity
        if result["error"] is not None and not result["error"] < float("inf"):
            result["error"] = None
    return {"schema": SCHEMA, "machine": machine, "note": note, "results": results}


def write(path: Path, text: str) -> None:
    """Write a report.

    Raises:
        InputError: the file cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error


def read(path: Path) -> dict[str, Any]:
    """A document that this command wrote.

    Raises:
        InputError: the file cannot be read or is not such a document.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path}: not valid JSON: {error}") from error
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA or "results" not in document:
        raise InputError(f"{path}: not a report of `flash-attn-rocm bench` with schema {SCHEMA} (schema: {schema!r})")
    return dict(document)


def _cell(result: dict[str, Any]) -> str:
    if result["median_ms"] is None:
        return "-" if result["status"] == "unavailable" else result["status"].upper()
    ratio = f"{result['ratio']:.2f}x" if result["ratio"] else "-"
    return f"{result['median_ms']:.3f} ms  {result['tflops']:.0f}  {ratio}"


def shape_key(result: dict[str, Any]) -> tuple[Any, ...]:
    """What two results must share to be of one shape."""
    return tuple(result[key] for key in ("seqlen", "batch", "heads", "heads_k", "headdim", "dtype", "causal"))


def tables(document: dict[str, Any]) -> list[tuple[str, Table]]:
    """One table a direction, with its title: a row for each shape, a column for each method that ran anywhere."""
    titles = {name: entry["title"] for name, entry in document["machine"]["methods"].items()}
    made = []
    for direction in DIRECTIONS:
        results = [result for result in document["results"] if result["direction"] == direction]
        names = [n for n in titles if any(r["method"] == n and r["status"] != "unavailable" for r in results)]
        if not results:
            continue
        table = Table()
        table.add_column("seqlen", justify="right", no_wrap=True)
        for name in names:
            table.add_column(titles[name], justify="right", no_wrap=True)
        for key in dict.fromkeys(shape_key(result) for result in results):
            cells = {r["method"]: _cell(r) for r in results if shape_key(r) == key}
            table.add_row(str(key[0]), *(cells.get(name, "-") for name in names))
        made.append((f"{direction}: median latency, TFLOPS, speed relative to {REFERENCE.title}", table))
    return made


def remarks(document: dict[str, Any]) -> list[str]:
    """What the tables do not say: methods that did not run and why, spread, clocks, and the note."""
    lines: dict[str, None] = {}
    for result in document["results"]:
        if result["detail"]:
            title = document["machine"]["methods"][result["method"]]["title"]
            ran = result["status"] in ("wrong", "failed")
            place = f" {result['direction']} at {result['seqlen']}" if ran else ""
            lines[f"{title}{place}: {result['status']}: {result['detail']}"] = None
    timed = [result for result in document["results"] if result["median_ms"]]
    if timed:
        worst = max(timed, key=lambda r: (r["p90_ms"] - r["p10_ms"]) / r["median_ms"])
        spread = (worst["p90_ms"] - worst["p10_ms"]) / worst["median_ms"]
        lines[f"spread (p90 - p10) / median: at most {spread:.1%} ({worst['method']} at {worst['seqlen']})"] = None
    idle = State(**document["machine"]["idle"])
    for key, unit, cap in (("clock_mhz", "MHz", idle.clock_max_mhz), ("power_w", "W", idle.power_cap_w)):
        if values := [result[key] for result in timed if result[key] is not None]:
            most = f" of {cap:.0f}" if cap else ""
            lines[f"{key.partition('_')[0]}: {min(values):.0f} to {max(values):.0f}{most} {unit}"] = None
    if idle.note:
        lines[f"performance level: {idle.note}"] = None
    return [*lines, document["note"]]
