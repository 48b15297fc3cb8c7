"""Facts about each supported GPU, one TOML file per GPU, validated into frozen `Arch` objects."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from flash_attn_rocm.errors import ArchTableError, UnsupportedGpuError

BACKENDS = ("ck", "sdpa")
_KEYS: dict[str, type] = {
    "gfx": str,
    "family": str,
    "products": list,
    "amdgpu_arch": str,
    "elf_machine": int,
    "wave_size": int,
    "lds_kib": int,
    "vgprs": int,
    "compute_units": int,
    "multiprocessors": int,
    "memory_gib": int,
    "l2_mib": int,
    "llc_mib": int,
    "head_grouping": bool,
    "matrix": str,
    "transposed_loads": bool,
    "bf16_rounding": int,
    "backend": dict,
}
_BACKEND_KEYS: dict[str, type] = {"forward": str, "backward": str, "evidence": str}


@dataclass(frozen=True)
class Arch:
    """One GPU: every fact that planning, dispatch, packaging and emulation read."""

    gfx: str
    family: str
    products: tuple[str, ...]
    amdgpu_arch: str
    elf_machine: int
    wave_size: int
    lds_kib: int
    vgprs: int
    compute_units: int
    multiprocessors: int
    memory_gib: int
    l2_mib: int
    llc_mib: int
    head_grouping: bool
    matrix: str
    transposed_loads: bool
    bf16_rounding: int
    forward_backend: str
    backward_backend: str
    backend_evidence: str


def _check_keys(table: dict[str, Any], schema: dict[str, type], path: Path, where: str) -> None:
    if unknown := sorted(set(table) - set(schema)):
        raise ArchTableError(path, f"unknown keys {unknown} in {where}; allowed: {sorted(schema)}")
    if missing := sorted(set(schema) - set(table)):
        raise ArchTableError(path, f"missing keys {missing} in {where}")
    for key, kind in schema.items():
        if type(table[key]) is not kind:  # isinstance would take a bool for an int
            raise ArchTableError(path, f"{where} key {key} is {table[key]!r}; expected {kind.__name__}")


def parse_arch(path: Path) -> Arch:
    """Read one GPU's TOML file.

    Raises:
        ArchTableError: a key is unknown, missing or of the wrong type, or the file name is not the GPU's name.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ArchTableError(path, f"not valid TOML: {error}") from error
    _check_keys(table, _KEYS, path, "top level")
    backend = table.pop("backend")
    _check_keys(backend, _BACKEND_KEYS, path, "[backend]")
    for direction in ("forward", "backward"):
        if backend[direction] not in BACKENDS:
            raise ArchTableError(path, f"backend.{direction} is {backend[direction]!r}; allowed: {list(BACKENDS)}")
    if table["gfx"] != path.stem:
        raise ArchTableError(path, f"gfx is {table['gfx']!r}; expected {path.stem!r}, the file's name")
    table["products"] = tuple(table["products"])
    return Arch(
        **table,
        forward_backend=backend["forward"],
        backward_backend=backend["backward"],
        backend_evidence=backend["evidence"],
    )


@cache
def load_archs() -> dict[str, Arch]:
    """Every GPU in this package, by gfx name, in name order."""
    return {path.stem: parse_arch(path) for path in sorted(Path(__file__).parent.glob("gfx*.toml"))}


def load_arch(gfx: str, asked_by: str = "", note: str = "") -> Arch:
    """One GPU by its gfx name; feature suffixes such as `:sramecc+` are ignored.

    Args:
        gfx: name as the HIP runtime gives it; gfx names are lower case.
        asked_by: the variable or option that named it, for the error.
        note: what the error should add about the machine's GPUs.

    Raises:
        UnsupportedGpuError: no table for that GPU.
    """
    name = gfx.split(":", 1)[0]
    archs = load_archs()
    if name not in archs:
        raise UnsupportedGpuError(name, tuple(archs), asked_by, note)
    return archs[name]
