"""When a package is built again, and what a failed build says."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from conda_package_handling import api

from scripts.buildlib import sources
from scripts.buildlib.packages import Output, PackageError, Places, build_output, clear_others, output_keys


@dataclass
class Rendered:
    """Stands for rattler-build's rendered variant: writes a package, or fails after printing an error."""

    variant: dict[str, str] = field(default_factory=dict)
    fails: bool = False
    runs: int = 0

    def run_build(self, *, output_dir: Path, progress_callback: Any, **_: Any) -> None:
        self.runs += 1
        if self.fails:
            progress_callback.on_log(Event("info", "x.cpp:1: error: no", "Running build script"))
            raise RuntimeError("Script failed to execute")
        target = output_dir / "noarch" / "thing-1-h_0.conda"
        target.parent.mkdir(parents=True, exist_ok=True)
        write_package(target, ["file:///home/me/.cache/channels/0a/", "conda-forge"])


def write_package(target: Path, channels: list[str]) -> None:
    """A small package whose about.json names these channels."""
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "tree"
        for name, text in (
            ("share/a", "data"),
            ("info/about.json", json.dumps({"channels": channels, "license": "X"})),
        ):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_text(text, encoding="utf-8")
        api.create(str(tree), None, target.name, out_folder=scratch)
        (Path(scratch) / target.name).replace(target)


@dataclass
class Event:
    """A message as rattler-build sends it."""

    level: str
    message: str
    span: str


def _output(rendered: Rendered, stage: str = "selector", name: str = "thing") -> Output:
    return Output(name, "1", "h_0", "noarch", stage, rendered)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path / "work", tmp_path / "logs", tmp_path / "dist", tmp_path / "store")


def _build(output: Output, places: Places, key: str = "k") -> bool:
    return build_output(output, key, [], places, lambda _: None)


def test_package_is_built_once_and_taken_from_the_store_by_another_checkout(places: Places, tmp_path: Path) -> None:
    rendered = Rendered()
    assert _build(_output(rendered), places)
    assert not _build(_output(rendered), places)
    other = Places(tmp_path / "work2", places.logs, tmp_path / "dist2", places.store)
    assert not _build(_output(rendered), other)
    assert rendered.runs == 1
    (stored,) = places.store.rglob("*.conda")
    for folder in (places.dist, places.work, other.dist, other.work):
        assert (folder / "noarch" / "thing-1-h_0.conda").read_bytes() == stored.read_bytes()


def test_no_directory_of_the_machine_is_left_in_a_package(places: Places, tmp_path: Path) -> None:
    _build(_output(Rendered()), places)
    api.extract(str(places.dist / "noarch" / "thing-1-h_0.conda"), str(tmp_path / "tree"))
    about = json.loads((tmp_path / "tree" / "info" / "about.json").read_text(encoding="utf-8"))
    assert about == {"channels": ["conda-forge"], "license": "X"}
    assert (tmp_path / "tree" / "share" / "a").read_text(encoding="utf-8") == "data"


def test_another_key_builds_again(places: Places) -> None:
    rendered = Rendered()
    _build(_output(rendered), places, "one")
    assert _build(_output(rendered), places, "two")
    assert rendered.runs == 2


def test_failure_shows_the_first_error_and_the_log_and_stores_nothing(places: Places) -> None:
    output = _output(Rendered(fails=True))
    with pytest.raises(PackageError, match=r"building thing failed(.|\n)*x.cpp:1: error: no(.|\n)*thing.log"):
        _build(output, places)
    output.rendered.fails = False
    assert _build(output, places)


def test_packages_of_earlier_builds_are_removed(places: Places) -> None:
    _build(_output(Rendered()), places)
    stale = places.dist / "noarch" / "thing-0-h_0.conda"
    stale.write_bytes(b"")
    clear_others(places, [_output(Rendered())])
    assert [path.name for path in places.dist.glob("*/*")] == ["thing-1-h_0.conda"]


def test_key_follows_sources_variant_channel_and_the_outputs_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    monkeypatch.setattr(sources, "find_scripts", lambda _: set())
    (tmp_path / "ck").mkdir()
    (tmp_path / "ck" / "a.py").write_text("1", encoding="utf-8")

    def keys(variant: dict[str, str], channel: str = "c") -> list[str]:
        outputs = [_output(Rendered(variant), "kernels"), _output(Rendered(), "selector", "second")]
        return list(output_keys(outputs, [channel]).values())

    first = keys({"profile": "smoke"})
    assert keys({"profile": "smoke", "build_cache": "/elsewhere", "ck_root": "/mine", "max_jobs": "3"}) == first
    assert all(new != old for new, old in zip(keys({"profile": "full"}), first, strict=True))
    assert all(new != old for new, old in zip(keys({"profile": "smoke", "ck_tree": "0a"}), first, strict=True))
    assert all(new != old for new, old in zip(keys({"profile": "smoke"}, "d"), first, strict=True))
    (tmp_path / "ck" / "a.py").write_text("2", encoding="utf-8")
    assert all(new != old for new, old in zip(keys({"profile": "smoke"}), first, strict=True))
