"""Run a task of pixi.toml the way pixi does, for machines without pixi: `run_task.py TASK [ARGUMENTS]`."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def load_tasks(manifest: Path, platform: str) -> dict[str, dict[str, Any]]:
    """Tasks of a pixi manifest as tables, with those of `[target.<platform>.tasks]` put over the general ones."""
    table = tomllib.loads(manifest.read_text(encoding="utf-8"))
    merged = {**table.get("tasks", {}), **table.get("target", {}).get(platform, {}).get("tasks", {})}
    return {name: task if isinstance(task, dict) else {"cmd": task} for name, task in merged.items()}


def order_tasks(tasks: dict[str, dict[str, Any]], name: str, above: tuple[str, ...] = ()) -> Iterator[str]:
    """A task's dependencies, deepest first, then the task itself.

    Raises:
        ValueError: the task or one it depends on does not exist, or tasks depend on each other in a circle.
    """
    if name in above:
        raise ValueError(f"tasks depend on each other in a circle: {' -> '.join((*above, name))}")
    if name not in tasks:
        raise ValueError(f"there is no task {name!r}; tasks: {', '.join(sorted(tasks))}")
    depends_on = tasks[name].get("depends-on", [])
    for dependency in [depends_on] if isinstance(depends_on, str) else depends_on:
        yield from order_tasks(tasks, dependency, (*above, name))
    yield name


def run(task: dict[str, Any], arguments: list[str]) -> int:
    """Run one task's command with the arguments appended, in its directory and environment; its exit code."""
    if "cmd" not in task:
        return 0
    command = shlex.split(task["cmd"]) if isinstance(task["cmd"], str) else list(task["cmd"])
    if command[0] == "python":
        command[0] = sys.executable
    environment = {**os.environ, **task.get("env", {})}
    return subprocess.call([*command, *arguments], cwd=ROOT / task.get("cwd", "."), env=environment)


def main(arguments: list[str]) -> int:
    platform = "win-64" if sys.platform == "win32" else "linux-64"
    tasks = load_tasks(ROOT / "pixi.toml", platform)
    if not arguments:
        for name, task in tasks.items():
            print(f"{name:10} {task.get('description', '')}")
        return 0
    name, *rest = arguments
    try:
        ordered = list(dict.fromkeys(order_tasks(tasks, name)))
    except ValueError as error:
        print(f"pixiw: {error}", file=sys.stderr)
        return 2
    for step in ordered:
        if code := run(tasks[step], rest if step == name else []):
            return code
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
