"""Finds the pseudo-code of a family in the installed tinygrad package, without importing that package."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

MODULES = {"gfx9": "cdna", "gfx11": "rdna3", "gfx12": "rdna4"}
FORMATS = ("SOP", "VOP")


def load_entries(family: str) -> dict[str, str]:
    """Instruction name (lower case, without _e32 or _e64) to its text, for the scalar and vector ALU."""
    spec = importlib.util.find_spec("tinygrad")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("tinygrad is not installed; run pip install -r requirements/dev.txt")
    path = Path(spec.origin).parent / "runtime" / "autogen" / "amd" / MODULES[family] / "str_pcode.py"
    tree = ast.parse(path.read_text())
    table = next(node.value for node in tree.body if isinstance(node, ast.Assign))
    if not isinstance(table, ast.Dict):
        raise ValueError(f"{path} does not assign a dictionary")
    entries: dict[str, str] = {}
    for key, value in zip(table.keys, table.values, strict=True):
        if not (isinstance(key, ast.Attribute) and isinstance(key.value, ast.Name) and isinstance(value, ast.Constant)):
            raise ValueError(f"{path}:{value.lineno} is not <format>.<instruction>: text")
        if key.value.id.startswith(FORMATS) and not key.value.id.startswith(("VOPD", "SOPP")):
            entries.setdefault(key.attr.lower().removesuffix("_e32").removesuffix("_e64"), str(value.value))
    return entries
