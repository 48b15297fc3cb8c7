"""The workflow files: their commands are commands of this repository, with arguments that it accepts."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from flash_attn_rocm.archs import load_archs
from scripts import build, kernels
from scripts.buildlib.request import choose_archs

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
# What the expressions of the workflows stand for in these tests.
VALUES = {
    "matrix.gpu": "gfx1201",
    "matrix.shard": "2",
    "env.SHARDS": "4",
    "env.PROFILE": "inference",
    "inputs.profile": "full",
}


def _load(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return document


def _steps(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for job in document["jobs"].values():
        yield from job["steps"]


def _fill(text: str) -> str:
    """The text with every expression replaced; an expression that VALUES lacks is a KeyError."""
    return re.sub(r"\$\{\{ *(.*?) *\}\}", lambda found: VALUES[found.group(1)], text)


def _commands() -> list[tuple[str, ...]]:
    """Every ./pixiw command: the task and its arguments."""
    lines = [
        line
        for path in FILES
        for step in _steps(_load(path))
        for line in _fill(step.get("run", "")).splitlines()
        if line.startswith("./pixiw ")
    ]
    return [tuple(shlex.split(line)[2:]) for line in lines]


def test_there_are_workflows_and_their_commands_are_tasks() -> None:
    assert [path.name for path in FILES] == ["ci.yml", "kernels.yml"]
    tasks = tomllib.loads((ROOT / "pixi.toml").read_text(encoding="utf-8"))["tasks"]
    commands = _commands()
    assert {task for task, *_ in commands} == {"kernels", "build"}
    assert {task for task, *_ in commands} <= set(tasks)
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


@pytest.mark.parametrize("command", [command for command in _commands() if command[0] == "kernels"])
def test_kernel_commands_make_a_plan(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [word for word in command[1:] if word != "--sizes"]  # which needs kernels that were built
    assert kernels.main([*arguments, "--dry-run"]) == 0
    assert "gfx1201" in capsys.readouterr().out


@pytest.mark.parametrize("command", [command for command in _commands() if command[0] == "build"])
def test_build_commands_are_accepted(command: tuple[str, ...]) -> None:
    options = build.parse(list(command[1:]))
    assert [arch.gfx for arch in choose_archs(options.arch, {})] == ["gfx1201"]
    assert options.profile in ("smoke", "inference")


def test_every_gpu_is_planned_in_as_many_parts_as_there_are(tmp_path: Path) -> None:
    document = _load(ROOT / ".github" / "workflows" / "kernels.yml")
    (script,) = [step["run"] for step in document["jobs"]["plan"]["steps"] if "run" in step]
    outputs = tmp_path / "outputs"
    variables = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "GITHUB_OUTPUT": str(outputs)}
    shards = str(document["env"]["SHARDS"])
    subprocess.run(["bash", "-euc", script], cwd=ROOT, env={**variables, "SHARDS": shards}, check=True)
    found = dict(line.split("=", 1) for line in outputs.read_text(encoding="utf-8").splitlines())
    assert json.loads(found["gpus"]) == [arch.gfx for arch in choose_archs("all", {})]
    assert json.loads(found["shards"]) == list(range(1, int(shards) + 1))
    matrix = document["jobs"]["compile"]["strategy"]["matrix"]
    assert set(matrix) == {"gpu", "shard"}
    assert document["jobs"]["plan"]["outputs"] == {name: f"${{{{ steps.list.outputs.{name} }}}}" for name in found}


def test_what_a_part_leaves_is_what_the_merge_takes() -> None:
    document = _load(ROOT / ".github" / "workflows" / "kernels.yml")
    (compile_part,) = [step["run"] for step in document["jobs"]["compile"]["steps"] if "run" in step]
    (upload,) = [step["with"] for step in document["jobs"]["compile"]["steps"] if "upload" in step.get("uses", "")]
    (download,) = [step["with"] for step in document["jobs"]["packages"]["steps"] if "download" in step.get("uses", "")]
    (merge,) = [step["run"] for step in document["jobs"]["packages"]["steps"] if "--merge" in step.get("run", "")]
    assert upload["path"] == shlex.split(compile_part)[-1] + "/cache"
    assert _fill(upload["name"]).startswith(_fill(download["pattern"]).removesuffix("*"))
    assert merge.endswith(f"--merge {download['path']}/*")  # an artifact a directory
    assert document["jobs"]["packages"]["needs"] == ["plan", "compile"]


def test_one_gpu_of_every_family_is_built_and_verified() -> None:
    gpus = _load(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]["smoke"]["strategy"]["matrix"]["gpu"]
    archs = load_archs()
    assert sorted(archs[gpu].family for gpu in gpus) == sorted({arch.family for arch in archs.values()})
