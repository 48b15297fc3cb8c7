"""What is shown while kernels compile."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from scripts.buildlib.progress import Estimate, follow, format_seconds


def test_seconds_are_minutes_and_seconds() -> None:
    assert [format_seconds(value) for value in (0, 59.6, 65, 3600)] == ["0:00", "1:00", "1:05", "60:00"]


def test_time_left_is_the_estimate_until_something_finished() -> None:
    assert Estimate({"a": 40.0, "b": 60.0}, jobs=2).left_s(10.0) == 40.0


def test_time_left_is_corrected_by_what_compiles_really_took() -> None:
    estimate = Estimate({"a": 40.0, "b": 60.0}, jobs=1)
    estimate.finish("a", wall_s=80.0, cached=False)
    assert estimate.left_s(80.0) == pytest.approx(120.0)


def test_cached_units_cost_no_time() -> None:
    estimate = Estimate({"a": 40.0, "b": 60.0}, jobs=1)
    estimate.finish("a", wall_s=0.1, cached=True)
    assert estimate.left_s(0.0) == 60.0
    estimate.finish("b", wall_s=0.1, cached=True)
    assert estimate.left_s(5.0) == 0.0


def run(tmp_path: Path, lines: list[str], terminal: bool = False) -> tuple[str, list[str]]:
    stream = io.StringIO()
    console = Console(file=stream, width=200, force_terminal=terminal)
    units = {"one": 6, "two": 4}
    other = follow(lines, console, dict.fromkeys(units, tmp_path), Estimate({"one": 40.0, "two": 40.0}, 2), units)
    return stream.getvalue(), other


def test_plain_lines_without_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "one.stats.json").write_text(json.dumps({"cached": True, "wall_s": 0.1}))
    (tmp_path / "two.stats.json").write_text(json.dumps({"cached": False, "wall_s": 65.0}))
    text, other = run(tmp_path, ["ninja: Entering directory\n", "[1/2] one\n", "[2/2] two\n"])
    lines = text.strip().splitlines()
    assert lines[0].startswith("[1/2] one: 6 kernels from the cache; elapsed 0:00, about 0:20 left")
    assert lines[1].startswith("[2/2] two: 4 kernels compiled in 1:05; elapsed")
    assert other == ["ninja: Entering directory\n"]


def test_failed_unit_is_called_failed(tmp_path: Path) -> None:
    (tmp_path / "one.failed.json").write_text("{}")
    (tmp_path / "one.stats.json").write_text(json.dumps({"cached": False, "wall_s": 5.0}))
    text, _ = run(tmp_path, ["[1/2] one\n"])
    assert "one: 6 kernels failed" in text


def test_terminal_shows_a_live_line_with_done_and_total(tmp_path: Path) -> None:
    (tmp_path / "one.stats.json").write_text(json.dumps({"cached": False, "wall_s": 5.0}))
    text, _ = run(tmp_path, ["[1/2] one\n"], terminal=True)
    assert "6/10" in text
    assert "elapsed" in text
    assert "left" in text
