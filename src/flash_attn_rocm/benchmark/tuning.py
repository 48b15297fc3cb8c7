"""Decides from measurements which backend runs in each direction on a GPU, as it stands in a policy file."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from flash_attn_rocm import environment
from flash_attn_rocm.benchmark.methods import Method, package_method
from flash_attn_rocm.benchmark.problem import Problem
from flash_attn_rocm.benchmark.run import Row, run
from flash_attn_rocm.benchmark.timing import Effort
from flash_attn_rocm.errors import InputError

# A difference below this is noise: then the package's table stands.
MARGIN = 0.03
CK, SDPA = package_method("ck", "CK kernels"), package_method("sdpa", "torch's attention")
# What a GPU runs whose forward is CK's and whose backward is not.
CK_THEN_TORCH = Method(
    "sdpa", "torch after CK", CK.layout, True, CK.allowed_error, CK.load,
    {environment.BACKEND: environment.CK_FORWARD_ONLY}, CK.distribution,
)  # fmt: skip


@dataclass(frozen=True)
class Decision:
    """The backend of one direction, why, and the times behind it."""

    direction: str
    backend: str
    evidence: str
    measured: tuple[dict[str, Any], ...] = ()

    def as_table(self) -> dict[str, Any]:
        """As it stands in a policy file."""
        return {"backend": self.backend, "evidence": self.evidence, "measured": list(self.measured)}


def _time_of(rows: Sequence[Row], method: str, problem: Problem) -> float:
    """Milliseconds of a method on a shape.

    Raises:
        InputError: it did not run, or its result is wrong.
    """
    (row,) = (row for row in rows if row.method == method and row.problem == problem)
    if row.timing is None:
        raise InputError(
            f"{row.direction} of {problem.name} on backend {method}: {row.status}: {row.detail}. Nothing was written; "
            "`flash-attn-rocm info` shows what is installed, `flash-attn-rocm verify` checks the kernels"
        )
    return row.timing.median_ms


def decide(direction: str, table_backend: str, times: Sequence[tuple[Problem, float, float]], where: str) -> Decision:
    """Choose by the geometric mean of the ratio of times; the package's table where they hardly differ.

    Args:
        direction: forward or backward.
        table_backend: what the package's table says.
        times: shape, milliseconds of CK, milliseconds of torch.
        where: the machine, for the evidence.
    """
    ratios = [sdpa / ck for _, ck, sdpa in times]
    mean = math.exp(sum(math.log(ratio) for ratio in ratios) / len(ratios))
    close = abs(math.log(mean)) < math.log(1.0 + MARGIN)
    backend = table_backend if close else ("ck" if mean > 1.0 else "sdpa")
    shapes = f"{len(ratios)} shape{'s' if len(ratios) > 1 else ''}"
    among = f" ({min(ratios):.2f} to {max(ratios):.2f} among them)" if len(ratios) > 1 else ""
    kept = f", under {MARGIN:.0%}: the table stands" if close else ""
    evidence = f"tune: ck is {mean:.2f} times as fast as sdpa over {shapes}{among}{kept}; {where}"
    measured = tuple(
        {"shape": problem.name, "ck_ms": round(ck, 4), "sdpa_ms": round(sdpa, 4)} for problem, ck, sdpa in times
    )
    return Decision(direction, backend, evidence, measured)


def disagreeing(decision: Decision) -> list[str]:
    """Shapes on which the other backend was faster, by more than the margin."""
    other = "sdpa" if decision.backend == "ck" else "ck"
    return [
        row["shape"] for row in decision.measured if row[f"{decision.backend}_ms"] > row[f"{other}_ms"] * (1.0 + MARGIN)
    ]


def tune(
    problems: Sequence[Problem],
    directions: Sequence[str],
    backends: dict[str, str],
    context: tuple[torch.device, Effort, str],
    say: Callable[[str], None],
) -> list[Decision]:
    """Measure and decide.

    Args:
        problems: the user's shapes.
        directions: which to decide.
        backends: by direction, what runs now without a decision.
        context: device, how long to measure, and the machine in words.
        say: told of progress.

    Raises:
        InputError: a backend did not run or gave a wrong result.
    """
    device, effort, where = context
    decisions = []
    forward = backends["forward"]
    if "forward" in directions:
        rows = run([CK, SDPA], problems, ["forward"], device, effort, say)
        times = [(p, _time_of(rows, "ck", p), _time_of(rows, "sdpa", p)) for p in problems]
        decisions.append(decide("forward", forward, times, where))
        forward = decisions[-1].backend
    if "backward" in directions:
        if forward == "sdpa":
            reason = f"tune: forward runs on torch's attention, whose gradients are torch's; {where}"
            return [*decisions, Decision("backward", "sdpa", reason)]
        with CK.in_use():
            lacking = [text for problem in problems if (text := CK.lacks(problem, "backward", device))]
        if lacking:
            return [*decisions, Decision("backward", "sdpa", f"tune: {lacking[0]}; {where}")]
        rows = run([CK, CK_THEN_TORCH], problems, ["backward"], device, effort, say)
        times = [(p, _time_of(rows, "ck", p), _time_of(rows, "sdpa", p)) for p in problems]
        decisions.append(decide("backward", backends["backward"], times, where))
    return decisions
