"""Rows of kernels.json for our own kernels, with the arguments that their sources declare."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.api.fake_runtime import kernel

DEVICE = Path(__file__).resolve().parents[2] / "csrc" / "device"
SOURCES = {
    "split_combine": "split_combine.hpp",
    "kv_prepare": "kv_prepare.hpp",
    "bwd_dot": "bwd_dot.hpp",
    "bwd_sum_keys": "bwd_sum.hpp",
    "bwd_sum_heads": "bwd_sum.hpp",
}


def _size(kind: str) -> int:
    if "*" in kind or "int64" in kind:
        return 8
    return 1 if "bool" in kind else 4


def arguments(op: str) -> dict[str, list[int]]:
    """Fields of the kernel's struct Kargs, [offset, bytes] each; every field begins at a multiple of 8."""
    text = (DEVICE / SOURCES[op]).read_text(encoding="utf-8")
    body = re.sub(r"//[^\n]*", "", text.split("struct Kargs\n    {")[1].split("};")[0])
    found: dict[str, list[int]] = {}
    for line in filter(None, (part.strip() for part in body.split(";"))):
        kind, names = re.fullmatch(r"(.*?[ *])((?:\w+, )*\w+)", line).groups()  # type: ignore[union-attr]
        for name in names.split(", "):
            found[name] = [8 * len(found), _size(kind)]
    return found


def own_kernel(op: str, name: str, **changes: Any) -> dict[str, Any]:
    """A row of kernels.json, with `changes`."""
    args = arguments(op)
    like = {"op": op, "hdim_q": 256, "hdim_v": 256, "padding": "full", "tile_m": 4, "tile_n": 1}
    return kernel(name, **like | {"args": args, "kargs_bytes": 8 * len(args)} | changes)
