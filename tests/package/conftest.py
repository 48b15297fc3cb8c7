"""Fixtures of the package tests: the built packages, the environment they were installed into, rendered outputs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flash_attn_rocm.archs import load_archs
from scripts.buildlib.packages import Output, render_outputs, variant_choices

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def dist() -> dict[str, Path]:
    """Built packages in dist/, by package name; of the selectors, one a GPU under one name, that which is installed."""
    records = (ROOT / "build" / "env" / "conda-meta").glob("flash-attn-rocm*.json")
    installed = {json.loads(record.read_text(encoding="utf-8"))["fn"] for record in records}
    paths = sorted((ROOT / "dist").glob("*/*.conda"), key=lambda path: (path.name in installed, path.name))
    found = {path.name.rsplit("-", 2)[0]: path for path in paths}
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
