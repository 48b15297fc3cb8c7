"""Fixtures of the package tests: the built packages, the environment they were installed into, rendered outputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from flash_attn_rocm.archs import load_archs
from scripts.buildlib.packages import Output, render_outputs, variant_choices

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def dist() -> dict[str, Path]:
    """Built packages in dist/, by package name."""
    found = {path.name.rsplit("-", 2)[0]: path for path in (ROOT / "dist").glob("*/*.conda")}
    if not found:
        pytest.fail("dist/ holds no packages: run ./pixiw run build first")
    return found


@pytest.fixture(scope="session")
def environment() -> Path:
    """The conda environment of the build."""
    prefix = ROOT / "build" / "env"
    if not (prefix / "conda-meta").is_dir():
        pytest.fail("build/env does not exist: run ./pixiw run build first")
    return prefix


@pytest.fixture(scope="session")
def outputs() -> list[Output]:
    """What the recipe makes for every GPU on linux-64."""
    return render_outputs(variant_choices(list(load_archs().values()), {}))
