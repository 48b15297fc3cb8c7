"""What a failed package build shows: the first error of the scripts, whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from scripts.buildlib.build_log import BuildLog


@dataclass
class Event:
    """A message as rattler-build sends it."""

    level: str
    message: str
    span: str | None


def _log(tmp_path: Path, lines: list[str]) -> BuildLog:
    log = BuildLog(tmp_path / "x.log", lambda _: None)
    for line in lines:
        log.on_log(Event("info", line, "Running build script"))
    log.on_log(Event("info", "something else: error", "index_subdir"))
    log.close()
    return log


def test_first_error_starts_at_the_first_line_that_is_one(tmp_path: Path) -> None:
    log = _log(tmp_path, ["[1/3] a.cpp -Werror", "a.cpp:3:1: error: no", "  3 | x", "b.cpp:1: error: also"])
    assert log.first_error().splitlines() == ["a.cpp:3:1: error: no", "  3 | x", "b.cpp:1: error: also"]


def test_without_an_error_line_the_last_lines_are_shown(tmp_path: Path) -> None:
    assert _log(tmp_path, ["one", "two"]).first_error() == "one\ntwo"


def test_everything_is_in_the_log_file(tmp_path: Path) -> None:
    log = _log(tmp_path, ["one"])
    assert log.path.read_text(encoding="utf-8") == "one\nsomething else: error\n"
