"""Show a running ninja: done of total, elapsed and time left; one live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

# ninja prints one such line when a compile ends; NINJA_STATUS is set to match.
NINJA_STATUS = "[%f/%t] "
_FINISHED = re.compile(r"^\[(\d+)/(\d+)\] (\S+)$")


def format_seconds(seconds: float) -> str:
    """Minutes and seconds, e.g. 1:05."""
    whole = max(0, round(seconds))
    return f"{whole // 60}:{whole % 60:02d}"


@dataclass
class Estimate:
    """Time left, from estimated CPU seconds per unit, corrected by what the finished compiles really took."""

    cpu_s: dict[str, float]
    jobs: int
    cached_: set[str] = field(default_factory=set)
    wall_s_: dict[str, float] = field(default_factory=dict)

    def finish(self, unit: str, wall_s: float, cached: bool) -> None:
        """Note that a unit is done."""
        if cached:
            self.cached_.add(unit)
        else:
            self.wall_s_[unit] = wall_s

    def left_s(self, elapsed_s: float) -> float:
        """Seconds until the last unit ends; units from the cache count as nothing."""
        compiled = {unit: self.cpu_s[unit] for unit in self.wall_s_ if unit in self.cpu_s}
        slowdown = sum(self.wall_s_[unit] for unit in compiled) / sum(compiled.values()) if compiled else 1.0
        total = sum(seconds for unit, seconds in self.cpu_s.items() if unit not in self.cached_)
        return max(0.0, total * slowdown / self.jobs - elapsed_s)


class _Left(ProgressColumn):
    """Elapsed time and time left, refreshed while compiles run."""

    max_refresh = 0.5

    def __init__(self, left_s: Callable[[float], float]) -> None:
        super().__init__()
        self._left_s = left_s

    def render(self, task: Task) -> Text:
        elapsed = task.elapsed or 0.0
        return Text(f"elapsed {format_seconds(elapsed)}, about {format_seconds(self._left_s(elapsed))} left")


def _load_stats(work: Path, unit: str) -> tuple[float, bool, str]:
    """Wall seconds, whether it came from the cache, and how it went in words."""
    path = work / f"{unit}.stats.json"
    if (work / f"{unit}.failed.json").exists() or not path.exists():
        return 0.0, False, "failed"
    stats = json.loads(path.read_text(encoding="utf-8"))
    wall_s, cached = float(stats["wall_s"]), bool(stats["cached"])
    return wall_s, cached, "from the cache" if cached else f"compiled in {format_seconds(wall_s)}"


def follow(
    lines: Iterable[str], console: Console, works: dict[str, Path], estimate: Estimate, kernels: dict[str, int]
) -> list[str]:
    """Show progress from ninja's output; returns the lines that are not progress (messages of ninja itself).

    `works` is the directory of each unit's statistics, `kernels` its number of kernels.
    """
    other: list[str] = []
    started = time.monotonic()
    done_kernels = 0
    columns = (TextColumn("kernels"), BarColumn(), TextColumn("{task.completed:.0f}/{task.total:.0f}"))
    with Progress(*columns, _Left(estimate.left_s), console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("kernels", total=sum(kernels.values()))
        for line in lines:
            found = _FINISHED.match(line.rstrip())
            if not found or found.group(3) not in kernels:
                other.append(line)
                continue
            unit = found.group(3)
            wall_s, cached, how = _load_stats(works[unit], unit)
            if how != "failed":
                estimate.finish(unit, wall_s, cached)
            done_kernels += kernels[unit]
            bar.update(task, completed=done_kernels)
            elapsed = time.monotonic() - started
            times = f"elapsed {format_seconds(elapsed)}, about {format_seconds(estimate.left_s(elapsed))} left"
            text = f"[{found.group(1)}/{found.group(2)}] {unit}: {kernels[unit]} kernels {how}"
            console.print(Text(text if console.is_terminal else f"{text}; {times}"), soft_wrap=True)
    return other
