"""What is installed, what would run and why: one report for people and for bug reports."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from flash_attn_rocm import environment, paths
from flash_attn_rocm.archs import packaged_archs
from flash_attn_rocm.backends import choice_for
from flash_attn_rocm.errors import FlashAttnRocmError, KernelManifestError
from flash_attn_rocm.gpu_identity import override_note
from flash_attn_rocm.kernel_manifest import read_manifest


@dataclass(frozen=True)
class Info:
    """The report; `asdict` of it is JSON-able."""

    packages: dict[str, str | None]
    environment: dict[str, str]
    library: dict[str, Any]
    kernels: dict[str, dict[str, Any]]
    runs: list[dict[str, str | None]]
    problems: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The report as plain dictionaries, lists and strings."""
        return asdict(self)


def _packages() -> dict[str, str | None]:
    try:
        own: str | None = metadata.version("flash-attn-rocm")
    except metadata.PackageNotFoundError:
        own = None
    return {
        "flash-attn-rocm": own,
        "torch": torch.__version__,
        "torch built for HIP": torch.version.hip,
        "torch built for CUDA": torch.version.cuda,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }


def _summarise(path: Path) -> dict[str, Any]:
    manifest = read_manifest(path)
    kernels = manifest["kernels"]
    return {
        "path": str(path),
        "profile": manifest["profile"],
        "compiler": manifest["compiler"],
        "ck": manifest["ck"],
        "kernels": len(kernels),
        "code_objects": len(manifest["code_objects"]),
        "head_dims": sorted({kernel["hdim_q"] for kernel in kernels}),
        "dtypes": sorted({kernel["dtype"] for kernel in kernels}),
        "ops": sorted({kernel["op"] for kernel in kernels}),
    }


def _installed_kernels(problems: list[str]) -> dict[str, dict[str, Any]]:
    kernels: dict[str, dict[str, Any]] = {}
    try:
        manifests = paths.find_manifests()
    except FlashAttnRocmError as error:
        problems.append(str(error))
        return kernels
    for gfx, path in manifests.items():
        try:
            kernels[gfx] = _summarise(path)
        except KernelManifestError as error:
            problems.append(str(error))
    return kernels


def _library(problems: list[str]) -> dict[str, Any]:
    from flash_attn_rocm import ops

    report: dict[str, Any] = {"path": str(paths.library_path())}
    try:
        report["version"] = ops.load().fa_rocm_version().decode()
        report.update(json.loads(ops.read_json("fa_rocm_describe")))
        if not needs_hip():
            return report
    except (FlashAttnRocmError, RuntimeError) as error:
        problems.append(str(error))
    if hip_error := report.get("hip", {}).get("error"):
        problems.append(hip_error)
    problems.extend(device["error"] for device in report.get("devices", []) if device.get("error"))
    return report


def needs_hip() -> bool:
    """True where CK kernels could run: a ROCm torch with a GPU, or an emulated GPU."""
    return bool(environment.emulated_gpus()) or (torch.version.hip is not None and torch.cuda.is_available())


def _devices() -> list[tuple[str, int | None]]:
    devices: list[tuple[str, int | None]] = [("cpu", None)]
    if torch.cuda.is_available():
        devices += [("cuda", index) for index in range(torch.cuda.device_count())]
    return devices


def _runs(problems: list[str]) -> list[dict[str, str | None]]:
    rows: list[dict[str, str | None]] = []
    for device_type, index in _devices():
        name = device_type if index is None else f"{device_type}:{index}"
        try:
            choice = choice_for(device_type, index)
        except FlashAttnRocmError as error:
            problems.append(f"{name}: {error}")
            rows.append({"device": name, "gfx": None, "backend": None, "reason": str(error)})
            continue
        rows.append({"device": name, "gfx": choice.gfx, "backend": choice.backend, "reason": choice.reason})
    return rows


def info() -> Info:
    """Report packages, library, HIP runtime, devices, installed kernels, what would run and why, and problems."""
    # First of all, since it explains others.
    problems = [note] if (note := override_note(packaged_archs())) else []
    return Info(
        packages=_packages(),
        environment={name: os.environ[name] for name in environment.REPORTED if name in os.environ},
        library=_library(problems),
        kernels=_installed_kernels(problems),
        runs=_runs(problems),
        problems=problems,
    )
