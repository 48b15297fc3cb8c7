"""Two benchmark reports side by side."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from flash_attn_rocm.benchmark.report import shape_key
from flash_attn_rocm.errors import InputError


def machine_name(document: dict[str, Any]) -> str:
    """What tells two machines apart, in a few words."""
    machine = document["machine"]
    emulated = f"emulated {','.join(machine['emulated'])}" if machine["emulated"] else None
    return f"{emulated or machine['gpu'] or machine['device']}, torch {machine['torch']}"


def compare(first: dict[str, Any], second: dict[str, Any]) -> Table:
    """Latency of each method and shape on both machines, and how many times as fast the second is.

    Raises:
        InputError: the reports have no method and shape in common.
    """

    def by_key(document: dict[str, Any]) -> dict[tuple[Any, ...], dict[str, Any]]:
        return {(r["direction"], r["method"], *shape_key(r)): r for r in document["results"]}

    left, right = by_key(first), by_key(second)
    shared = [key for key in left if key in right]
    if not shared:
        raise InputError("the two reports have no method and shape in common; run `bench` with the same options twice")
    table = Table(title=f"A: {machine_name(first)}\nB: {machine_name(second)}")
    for name in ("direction", "method", "shape"):
        table.add_column(name, no_wrap=True)
    for name in ("A ms", "A TFLOPS", "B ms", "B TFLOPS", "A ms / B ms"):
        table.add_column(name, justify="right", no_wrap=True)
    for key in shared:
        a, b = left[key], right[key]
        if a["median_ms"] is None and b["median_ms"] is None:
            continue
        cells = []
        for result in (a, b):
            timed = result["median_ms"] is not None
            cells += [f"{result['median_ms']:.3f}", f"{result['tflops']:.1f}"] if timed else [result["status"], "-"]
        both = a["median_ms"] is not None and b["median_ms"] is not None
        cells.append(f"{a['median_ms'] / b['median_ms']:.2f}" if both else "-")
        causal = " causal" if a["causal"] else ""
        heads = f"{a['heads']}" if a["heads"] == a["heads_k"] else f"{a['heads']}/{a['heads_k']}"
        shape = f"{a['dtype']} b{a['batch']} s{a['seqlen']} h{heads} d{a['headdim']}{causal}"
        table.add_row(a["direction"], a["method"], shape, *cells)
    return table
