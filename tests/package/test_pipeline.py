"""The stages around the packages: the size limit, which channels are the default, and errors that name their stage."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ck.errors import CkError
from ck.source import CkSource
from ck.variants import load_variants
from flash_attn_rocm.archs import load_arch
from scripts.buildlib import pipeline
from scripts.buildlib.errors import BuildError
from scripts.buildlib.packages import Output
from scripts.buildlib.pipeline import (
    Pipeline,
    StageError,
    check_sizes,
    default_channels,
    package_settings,
    run_pipeline,
    specs_to_install,
)


def _work(tmp_path: Path, main_bytes: int, profile: str = "smoke") -> Pipeline:
    work = Pipeline((load_arch("gfx1201"),), profile, [], Console(quiet=True), tmp_path)
    for name, size in (("flash-attn-rocm", main_bytes), ("flash-attn-rocm-kernels-gfx1201", 1_000_000)):
        output = Output(name, "1", "h_0", "noarch", "host", None)
        target = tmp_path / "dist" / "noarch" / output.file_name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"\0" * size)
        work.outputs.append(output)
    return work


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "ROOT", tmp_path)
    monkeypatch.setattr(pipeline, "DIST", tmp_path / "dist")


@pytest.mark.parametrize("profile", ["smoke", "ci"])
def test_five_megabytes_are_the_limit_of_main_and_a_small_profile(tmp_path: Path, profile: str) -> None:
    check_sizes(_work(tmp_path, 4_000_000, profile))
    with pytest.raises(BuildError, match=r"gfx1201 are 5\.00 MB; allowed: 5\.0 MB"):
        check_sizes(_work(tmp_path, 4_000_001, profile))


def test_twenty_five_megabytes_are_the_limit_of_full(tmp_path: Path) -> None:
    check_sizes(_work(tmp_path, 24_000_000, "full"))
    with pytest.raises(BuildError, match=r"gfx1201 are 25\.00 MB; allowed: 25\.0 MB"):
        check_sizes(_work(tmp_path, 24_000_001, "full"))


def test_every_profile_has_a_limit() -> None:
    assert set(pipeline.SIZE_LIMITS_MB) == set(load_variants().profiles)


def test_a_conda_environment_uses_its_channel_and_another_python_the_local_one(tmp_path: Path) -> None:
    assert default_channels(tmp_path) == []
    (tmp_path / "conda-meta").mkdir()
    assert default_channels(tmp_path) == ["conda-forge"]


@pytest.mark.parametrize("kind", [BuildError, CkError])
def test_an_error_names_its_stage(kind: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Pipeline) -> None:
        error: Any = kind.__new__(kind)
        Exception.__init__(error, "no luck")
        raise error

    monkeypatch.setenv("FLASH_ATTN_ROCM_CACHE", str(tmp_path))
    monkeypatch.setitem(pipeline._STAGES, "ck", (fail,))
    with pytest.raises(StageError, match="stage ck: no luck"):
        run_pipeline("gfx1201", "smoke", [], ["ck"])


def test_another_ck_tree_and_the_job_limit_are_passed_to_the_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAX_JOBS", "1")
    monkeypatch.setenv("OPT_DIM", "128,64")
    work = _work(tmp_path, 0)
    work.ck = CkSource(tmp_path / "ck", "pinned", "test", pinned=True)
    settings = package_settings(work)
    assert {settings[name] for name in ("ck_root", "ck_tree")} == {""}
    assert (settings["max_jobs"], settings["opt_dim"], settings["profile"]) == ("1", "64;128", "smoke")
    work.ck = CkSource(tmp_path / "ck", "mine", "test")
    trees = []
    for text in ("one", "two"):
        header = tmp_path / "ck" / "include" / "ck_tile" / "core.hpp"
        header.parent.mkdir(parents=True, exist_ok=True)
        header.write_text(text, encoding="utf-8")
        settings = package_settings(work)
        assert settings["ck_root"] == str(tmp_path / "ck")
        trees.append(settings["ck_tree"])
    assert trees[0] != trees[1]


def test_of_several_selectors_only_the_chosen_one_is_installed() -> None:
    outputs = [
        Output("flash-attn-rocm-kernels", "1", "gfx1201_h1_0", "noarch", "selector", None),
        Output("flash-attn-rocm-kernels", "1", "gfx942_h2_0", "noarch", "selector", None),
        Output("flash-attn-rocm", "1", "h3_0", "linux-64", "host", None),
    ]
    assert specs_to_install(outputs, load_arch("gfx1201")) == [
        "flash-attn-rocm-kernels ==1 gfx1201_h1_0",
        "flash-attn-rocm ==1 h3_0",
    ]


@pytest.mark.parametrize(
    ("cards", "profile", "told"),
    [
        (("gfx942", "gfx1036"), "ci", True),
        (("gfx942",), "inference", False),
        (("gfx1036",), "ci", False),
        ((), "ci", False),
    ],
)
def test_who_has_a_card_is_told_of_the_build_for_it(
    cards: tuple[str, ...], profile: str, told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "driver_gpus", lambda: cards)
    work = Pipeline((load_arch("gfx1201"),), profile, [], Console(file=io.StringIO(), record=True), tmp_path)
    pipeline.advise(work)
    advice = "For use on this machine's gfx942: ./pixiw run build --arch native --profile inference"
    assert (advice in work.console.export_text()) == told
