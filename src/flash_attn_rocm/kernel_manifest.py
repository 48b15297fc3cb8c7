"""Reads kernels.json, schema 1, as far as reports and verification need it; the host library reads it on its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flash_attn_rocm.errors import KernelManifestError

SCHEMA = 1
_KEYS: dict[str, type] = {
    "gfx": str,
    "wave_size": int,
    "profile": str,
    "compiler": str,
    "ck": str,
    "code_objects": list,
    "kernels": list,
}
_KERNEL_KEYS: dict[str, type] = {
    "name": str,
    "op": str,
    "mode": str,
    "dtype": str,
    "hdim_q": int,
    "tile_m": int,
    "tile_n": int,
    "mask": bool,
    "bias": str,
    "softcap": bool,
    "dropout": bool,
    "padding": str,
    "page": int,
    "deterministic": bool,
}


def _check(table: Any, schema: dict[str, type], path: Path, where: str) -> None:
    if not isinstance(table, dict):
        raise KernelManifestError(path, f"{where} is {type(table).__name__}; expected an object")
    for key, kind in schema.items():
        if key not in table:
            raise KernelManifestError(path, f"{where}: field {key!r} is missing")
        if type(table[key]) is not kind:
            raise KernelManifestError(path, f"{where}: field {key!r} is {table[key]!r}; expected {kind.__name__}")


def read_manifest(path: Path) -> dict[str, Any]:
    """One GPU's kernels.json.

    Raises:
        KernelManifestError: the file cannot be read, is not JSON, has another schema, lacks a field or describes
            another GPU than its directory is named after.
    """
    if path.exists() and not path.is_file():  # reading a pipe would never end
        raise KernelManifestError(path, "not a regular file")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise KernelManifestError(path, f"cannot be read: {error.strerror}") from error
    except ValueError as error:  # neither UTF-8 nor JSON
        raise KernelManifestError(path, f"not valid JSON: {error}") from error
    _check(manifest, {"schema": int}, path, "top level")
    if manifest["schema"] != SCHEMA:
        raise KernelManifestError(path, f"schema is {manifest['schema']}; expected {SCHEMA}")
    _check(manifest, _KEYS, path, "top level")
    if manifest["gfx"] != path.parent.name:
        raise KernelManifestError(path, f"holds kernels for {manifest['gfx']}; expected {path.parent.name}")
    for index, kernel in enumerate(manifest["kernels"]):
        _check(kernel, _KERNEL_KEYS, path, f"kernels[{index}]")
    return dict(manifest)
