"""The workspace files: pixi.toml against pixi's own schema, tasks against scripts, locks against what they lock."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest

ROOT = Path(__file__).resolve().parents[2]
REQUIRED_TASKS = {
    "build",
    "test",
    "verify",
    "info",
    "bench",
    "tune",
    "bench-compile",
    "kernels",
    "fetch-ck",
    "lint",
    "docs",
}


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pixi.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def validator() -> Any:
    """Validator for the JSON schema that the pixi project publishes, as shipped by a PyPI package."""
    schema_file = resources.files("validate_pyproject_schema_store") / "resources" / "pixi.schema.json"
    schema = json.loads(schema_file.read_text(encoding="utf-8"))
    return jsonschema.validators.validator_for(schema)(schema)


def test_manifest_is_valid(manifest: dict[str, Any], validator: Any) -> None:
    problems = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(manifest)]
    assert problems == []


def test_validator_rejects_a_wrong_task_key(manifest: dict[str, Any], validator: Any) -> None:
    broken = {**manifest, "tasks": {**manifest["tasks"], "build": {"cmd": "true", "nonsense": 1}}}
    assert list(validator.iter_errors(broken)) != []


def test_platforms(manifest: dict[str, Any]) -> None:
    assert manifest["workspace"]["platforms"] == ["linux-64", "win-64"]


def test_required_tasks_exist_with_descriptions(manifest: dict[str, Any]) -> None:
    assert set(manifest["tasks"]) >= REQUIRED_TASKS
    assert [name for name, task in manifest["tasks"].items() if not task.get("description")] == []


def test_every_task_runs_a_script_of_the_project(manifest: dict[str, Any]) -> None:
    for name, task in manifest["tasks"].items():
        interpreter, script, *_ = shlex.split(task["cmd"])
        assert interpreter == "python", name
        assert (ROOT / script).is_file(), f"task {name} runs {script}, which does not exist"


def test_packaging_environment_has_the_tools(manifest: dict[str, Any]) -> None:
    assert set(manifest["feature"]["packaging"]["dependencies"]) >= {"rattler-build", "conda-build", "boa"}


def test_every_pinned_requirement_is_locked_with_a_hash() -> None:
    wanted = re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)", (ROOT / "requirements" / "dev.in").read_text(), re.M)
    locked = (ROOT / "requirements" / "dev.txt").read_text()
    assert wanted
    for name, version in wanted:
        assert re.search(rf"^{re.escape(name)}=={re.escape(version)} \\\n    --hash=sha256:", locked, re.M | re.I), name


def test_locks_name_no_index() -> None:
    for lock in (ROOT / "requirements").iterdir():
        assert not re.search(r"https?://|--index-url|--find-links", lock.read_text()), lock.name


def test_pixiw_lists_every_task(manifest: dict[str, Any]) -> None:
    """run_task.py with no task prints the same table that pixi has."""
    result = subprocess.run(
        [sys.executable, ROOT / "scripts" / "run_task.py"], capture_output=True, text=True, check=True, timeout=60
    )
    for name, task in manifest["tasks"].items():
        assert re.search(rf"^{re.escape(name)}\s+{re.escape(task['description'])}$", result.stdout, re.M)


def test_pixiw_refuses_an_unknown_task() -> None:
    result = subprocess.run(
        [sys.executable, ROOT / "scripts" / "run_task.py", "biuld"], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 2
    assert "biuld" in result.stderr
    assert "build" in result.stderr


def test_pixiw_hands_over_to_pixi(tmp_path: Path) -> None:
    """A pixi on PATH gets the task and its arguments unchanged, with this workspace's manifest."""
    log = tmp_path / "log"
    fake = tmp_path / "pixi"
    fake.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >"{log}"\nexit 7\n')
    fake.chmod(0o755)
    result = subprocess.run(
        [ROOT / "pixiw", "run", "test", "tests/unit", "-k", "two words"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        timeout=60,
    )
    assert result.returncode == 7
    assert log.read_text().splitlines() == [
        *["run", "--manifest-path", str(ROOT / "pixi.toml")],
        *["test", "tests/unit", "-k", "two words"],
    ]


@pytest.mark.parametrize("arguments", [[], ["build"], ["install"]])
def test_pixiw_explains_its_use(arguments: list[str]) -> None:
    result = subprocess.run(
        [ROOT / "pixiw", *arguments], capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"}, timeout=60
    )
    assert result.returncode == 2
    assert "usage: ./pixiw run TASK" in result.stderr
