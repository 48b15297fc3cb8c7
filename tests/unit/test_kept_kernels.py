"""Where the build keeps kernels for the emulator, what makes them others, and which of them see the overlay."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ck.overlay import OVERLAY_DIR
from ck.plan import plan_units
from ck.source import CkSource
from flash_attn_rocm.archs import load_archs
from scripts.buildlib.kept_kernels import find_kept, keep_kernels, kept_directory
from scripts.buildlib.kernels import KernelRequest, find_includes, make_job
from scripts.buildlib.toolchains.layout import Toolchain

GPUS = ("gfx1201", "gfx942")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with one source."""
    directory = tmp_path / "project"
    (directory / "ck" / "overlay").mkdir(parents=True)
    (directory / "ck" / "overlay" / "a.hpp").write_text("one")
    return directory


def build(root: Path, text: str) -> Path:
    built = root / "build"
    for gfx in GPUS:
        (built / gfx).mkdir(parents=True, exist_ok=True)
        (built / gfx / "kernels.json").write_text(text)
        (built / gfx / "a.co").write_text(text)
        (built / gfx / "a.log").write_text("not kept")
    return built


def test_kept_under_a_name_of_its_sources(root: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert find_kept(cache, root) is None
    directory = keep_kernels(build(root, "first"), GPUS, cache, root)
    assert find_kept(cache, root) == directory == kept_directory(cache, root)
    assert sorted(path.name for path in (directory / "gfx942").iterdir()) == ["a.co", "kernels.json"]
    keep_kernels(build(root, "second"), GPUS, cache, root)
    assert (directory / "gfx942" / "a.co").read_text() == "second"
    assert [path.name for path in directory.parent.iterdir()] == [directory.name]
    (root / "ck" / "overlay" / "a.hpp").write_text("two")
    assert find_kept(cache, root) is None


def test_only_families_with_an_overlay_see_it(tmp_path: Path) -> None:
    """It comes before CK's own headers; the commands of other families do not change."""
    archs = load_archs()
    toolchain = Toolchain(**{field.name: tmp_path for field in dataclasses.fields(Toolchain)})
    for gfx, family in (("gfx1100", "gfx11"), ("gfx1201", None)):
        request = KernelRequest("ci", (archs[gfx],), tmp_path)
        unit = plan_units(archs[gfx], "ci", None)[0]
        searched = find_includes(archs[gfx], CkSource(tmp_path, "ck", "test"), tmp_path)
        job = make_job(archs[gfx], unit, request, toolchain, searched, {})
        includes = [word.removeprefix("-I") for word in job.command if word.startswith("-I")]
        overlay = [str(OVERLAY_DIR / family)] if family else []
        assert includes[1:] == [*overlay, str(tmp_path / "include")]
