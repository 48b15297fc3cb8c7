"""The conda packages for win-64, made on Linux through the recipe. Kernels and compat are noarch: no others."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from flash_attn_rocm.archs import load_archs
from scripts.buildlib import channel as local_channel
from scripts.buildlib import packages as conda_packages
from scripts.buildlib.conda_calls import index_channel
from scripts.buildlib.toolchain import find_toolchain

ROOT = Path(__file__).resolve().parents[3]
DIST = ROOT / "dist"
PLATFORM = "win-64"


def render_windows_outputs(cache: Path) -> list[conda_packages.Output]:
    """The recipe's packages that are for Windows alone."""
    choices = conda_packages.variant_choices(list(load_archs().values()), {"build_cache": str(cache)})
    return [output for output in conda_packages.render_outputs(choices, PLATFORM) if output.subdir == PLATFORM]


def build_windows_packages(cache: Path, report: Callable[[str], None]) -> list[Path]:
    """Build them into dist/win-64, each only when something that goes into it changed.

    Raises:
        BuildError: the local channel cannot be made, or a package does not build.
    """
    os.environ.setdefault("RATTLER_CACHE_DIR", str(cache / "conda" / "rattler"))
    outputs = render_windows_outputs(cache)
    names = {spec.split()[0] for output in outputs for spec in output.requirements.get("build", ())}
    plans = local_channel.plan_channel(names, find_toolchain([arch.gfx for arch in load_archs().values()]))
    channel = local_channel.make_channel(plans, cache / "conda", report)
    work = ROOT / "build" / "windows"
    places = conda_packages.Places(work / "conda", work / "logs", DIST, cache / "conda" / "outputs")
    conda_packages.clear_others(places, outputs, PLATFORM)
    keys = conda_packages.output_keys(outputs, [channel.name])
    for output in outputs:
        conda_packages.build_output(output, keys[output.file_name], [f"file://{channel}"], places, report)
    index_channel(DIST)
    return [DIST / output.subdir / output.file_name for output in outputs]
