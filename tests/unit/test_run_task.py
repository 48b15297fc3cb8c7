"""The task runner for machines without pixi does what pixi's documentation says of tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.run_task import load_tasks, order_tasks


def write(tmp_path: Path, text: str) -> Path:
    manifest = tmp_path / "pixi.toml"
    manifest.write_text(text)
    return manifest


def test_plain_string_is_a_command(tmp_path: Path) -> None:
    assert load_tasks(write(tmp_path, '[tasks]\nhello = "echo hello"\n'), "linux-64") == {
        "hello": {"cmd": "echo hello"}
    }


def test_target_tasks_replace_general_ones_on_their_platform_only(tmp_path: Path) -> None:
    manifest = write(tmp_path, '[tasks]\na = "one"\nb = "two"\n[target.win-64.tasks]\na = "windows"\n')
    assert load_tasks(manifest, "win-64")["a"]["cmd"] == "windows"
    assert load_tasks(manifest, "win-64")["b"]["cmd"] == "two"
    assert load_tasks(manifest, "linux-64")["a"]["cmd"] == "one"


def test_dependencies_run_first_and_deepest_first() -> None:
    tasks = {"c": {"depends-on": ["b", "a"]}, "b": {"depends-on": "a"}, "a": {"cmd": "x"}}
    assert list(dict.fromkeys(order_tasks(tasks, "c"))) == ["a", "b", "c"]


def test_circle_is_named() -> None:
    tasks = {"a": {"depends-on": ["b"]}, "b": {"depends-on": ["a"]}}
    with pytest.raises(ValueError, match="a -> b -> a"):
        list(order_tasks(tasks, "a"))


def test_unknown_dependency_is_named() -> None:
    with pytest.raises(ValueError, match="no task 'missing'"):
        list(order_tasks({"a": {"depends-on": ["missing"]}}, "a"))
