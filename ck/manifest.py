"""Write kernels.json: what one GPU's code objects hold, so that the host library needs no CK header."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ck.code_object import KernelImage, read_code_object
from ck.errors import CodeObjectError
from ck.plan import KernelSpec, Unit
from flash_attn_rocm.archs import Arch

SCHEMA = 1
MANIFEST_NAME = "kernels.json"


def _check(spec: KernelSpec, image: KernelImage, arch: Arch, path: Path) -> None:
    tile = spec.tile
    if tile is None:
        return
    promised = (tile.m, tile.n, tile.hdim_q, tile.hdim_v, arch.wave_size, tile.wave_count * arch.wave_size)
    found = (
        image.tile_m,
        image.tile_n,
        image.tile_hdim_q,
        image.tile_hdim_v,
        image.wave_size,
        image.block_threads,
    )
    if promised != found:
        raise CodeObjectError(
            path, f"{spec.name}: tile m, n, hdim q, v, wave size, threads are {found}; planned were {promised}"
        )


def manifest_row(spec: KernelSpec, image: KernelImage, code_object: int) -> dict[str, Any]:
    """One entry of "kernels": what the kernel computes, from its spec, and how to launch it, from its code object."""
    v = spec.variant
    return {
        "name": spec.name,
        "op": v.op,
        "code_object": code_object,
        "dtype": v.dtype,
        "hdim_q": image.tile_hdim_q,
        "hdim_v": image.tile_hdim_v,
        "mode": v.mode,
        "mask": v.mask,
        "bias": v.bias,
        "softcap": v.softcap,
        "dropout": v.dropout,
        "padding": v.padding,
        "page": v.page,
        "deterministic": v.deterministic,
        "tile_m": image.tile_m,
        "tile_n": image.tile_n,
        "block_threads": image.block_threads,
        "kargs_bytes": image.kargs_bytes,
        "args": {name: list(slot) for name, slot in image.args.items()},
        "lds_bytes": image.lds_bytes,
        "vgprs": image.vgprs,
        "sgprs": image.sgprs,
        "vgpr_spills": image.vgpr_spills,
        "sgpr_spills": image.sgpr_spills,
        "scratch_bytes": image.scratch_bytes,
        "kernarg_bytes": image.kernarg_bytes,
    }


def make_manifest(
    directory: Path, arch: Arch, profile: str, units: Iterable[Unit], compiler: str, ck: str
) -> dict[str, Any]:
    """Describe the code objects of `units` in `directory`.

    Raises:
        CodeObjectError: a code object lacks a planned kernel, holds another one, or was compiled for another tile.
    """
    objects: list[dict[str, Any]] = []
    kernels: list[dict[str, Any]] = []
    for unit in sorted(units, key=lambda unit: unit.name):
        path = directory / unit.object_name
        images = read_code_object(path)
        planned = {spec.name for spec in unit.specs}
        if planned != set(images):
            raise CodeObjectError(path, f"holds {sorted(images)}; planned were {sorted(planned)}")
        for spec in unit.specs:
            _check(spec, images[spec.name], arch, path)
            kernels.append(manifest_row(spec, images[spec.name], len(objects)))
        data = path.read_bytes()
        objects.append({"file": path.name, "sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)})
    kernels.sort(key=lambda row: str(row["name"]))
    return {
        "schema": SCHEMA,
        "gfx": arch.gfx,
        "wave_size": arch.wave_size,
        "profile": profile,
        "compiler": compiler,
        "ck": ck,
        "code_objects": objects,
        "kernels": kernels,
    }


def format_manifest(manifest: dict[str, Any]) -> str:
    """The manifest as JSON text, one line per code object and kernel; the same manifest gives the same text."""
    lines = ["{"]
    for key in ("schema", "gfx", "wave_size", "profile", "compiler", "ck"):
        lines.append(f" {json.dumps(key)}: {json.dumps(manifest[key])},")
    for key, end in (("code_objects", ","), ("kernels", "")):
        rows = ",\n".join(f"  {json.dumps(row)}" for row in manifest[key])
        lines.append(f" {json.dumps(key)}: [\n{rows}\n ]{end}")
    return "\n".join([*lines, "}"]) + "\n"


def write_manifest(directory: Path, manifest: dict[str, Any]) -> Path:
    """Write kernels.json beside its code objects; an unchanged manifest keeps its file untouched."""
    path = directory / MANIFEST_NAME
    text = format_manifest(manifest)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8", newline="\n")
    return path
