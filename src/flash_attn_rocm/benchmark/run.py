"""Runs methods on shapes: check the result against float32 first, then time it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from flash_attn_rocm.benchmark.clocks import State, read_state
from flash_attn_rocm.benchmark.methods import Attention, Method, NotAvailableError
from flash_attn_rocm.benchmark.problem import Exact, Problem, Tensors, draw, exact, relative_error
from flash_attn_rocm.benchmark.timing import Effort, Timing, measure, synchronize
from flash_attn_rocm.errors import KernelUnavailableError

DIRECTIONS = ("forward", "backward")
# A gradient is made of products of rounded numbers: it may err this many times as much as an output.
_GRADIENT_FACTOR = 2.0


@dataclass(frozen=True)
class Row:
    """One method on one shape in one direction.

    status: "ok"; "unavailable" (not installed, or not for this device or direction); "wrong": its result is not
    attention, so that it was not timed; "failed": it raised. `detail` says why.
    """

    direction: str
    method: str
    problem: Problem
    status: str
    detail: str = ""
    error: float | None = None
    allowed_error: float | None = None
    timing: Timing | None = None
    state: State | None = None

    @property
    def tflops(self) -> float | None:
        """10^12 floating-point operations a second at the median."""
        return self.problem.flops(self.direction) / self.timing.median_ms * 1e-9 if self.timing else None

    def as_dict(self, reference: Row | None) -> dict[str, Any]:
        """The row for JSON; `reference` is the row of SDPA that its speed is compared with."""
        row: dict[str, Any] = {"direction": self.direction, "method": self.method, **asdict(self.problem)}
        row |= {"status": self.status, "detail": self.detail, "error": self.error, "allowed_error": self.allowed_error}
        row |= dict.fromkeys(("median_ms", "p10_ms", "p90_ms", "samples"))
        row |= asdict(self.timing) if self.timing else {}
        base = reference.timing if reference else None
        row |= {
            "tflops": self.tflops,
            "ratio": base.median_ms / self.timing.median_ms if base and self.timing else None,
        }
        state = self.state or State()
        return row | {"clock_mhz": state.clock_mhz, "power_w": state.power_w}


def _heads_first(tensor: Tensor) -> Tensor:
    return tensor.transpose(1, 2).contiguous()


@dataclass(frozen=True)
class _Bound:
    """A method with inputs of one shape in its own layout."""

    method: Method
    attention: Attention
    problem: Problem
    inputs: Tensors
    dout: Tensor

    @classmethod
    def of(cls, method: Method, attention: Attention, problem: Problem, given: tuple[Tensors, Tensor]) -> _Bound:
        inputs, dout = given
        if method.layout == "bhsd":
            inputs, dout = inputs.map(_heads_first), _heads_first(dout)
        return cls(method, attention, problem, inputs, dout)

    def forward(self) -> Tensor:
        with torch.no_grad():
            return self.attention(self.inputs.q, self.inputs.k, self.inputs.v, self.problem.causal)

    def with_graph(self) -> tuple[Tensor, Tensors]:
        leaves = self.inputs.map(lambda tensor: tensor.detach().requires_grad_())
        return self.attention(leaves.q, leaves.k, leaves.v, self.problem.causal), leaves

    def backward(self) -> Callable[[], tuple[Tensor, ...]]:
        """The backward pass alone, to be called often."""
        out, leaves = self.with_graph()
        return lambda: torch.autograd.grad(out, list(leaves), self.dout, retain_graph=True)

    def usual(self, tensor: Tensor) -> Tensor:
        """Back to (batch, seqlen, heads, headdim)."""
        return tensor.transpose(1, 2) if self.method.layout == "bhsd" else tensor


def _error(bound: _Bound, direction: str, reference: Exact) -> float:
    if direction == "forward":
        return relative_error(bound.usual(bound.forward()), reference.out)
    assert reference.grads is not None
    grads = zip(bound.backward()(), reference.grads, strict=True)
    return max(relative_error(bound.usual(grad), wanted) for grad, wanted in grads)


def _row(bound: _Bound, direction: str, reference: Exact, device: torch.device, effort: Effort) -> Row:
    method, problem = bound.method, bound.problem
    allowed = method.allowed_error * (_GRADIENT_FACTOR if direction == "backward" else 1.0)
    error = _error(bound, direction, reference)
    if not error <= allowed:
        detail = f"relative error {error:.3g}, allowed {allowed:g}: not timed"
        return Row(direction, method.name, problem, "wrong", detail, error, allowed)
    call = bound.forward if direction == "forward" else bound.backward()
    timing = measure(call, device, effort)
    return Row(direction, method.name, problem, "ok", "", error, allowed, timing, read_state(device))


def _one(
    method: Method, problem: Problem, directions: Sequence[str], context: tuple[torch.device, Effort], exactly: Exact,
    given: tuple[Tensors, Tensor],
) -> Iterator[Row]:  # fmt: skip
    device, effort = context
    with method.in_use():
        try:
            attention = method.load(device)
        except NotAvailableError as reason:
            yield from (Row(name, method.name, problem, "unavailable", str(reason)) for name in directions)
            return
        for direction in directions:
            lacking = method.lacks(problem, direction, device)
            if direction == "backward" and not method.backward:
                lacking = "has no backward"
            if lacking:
                yield Row(direction, method.name, problem, "unavailable", lacking)
                continue
            try:
                bound = _Bound.of(method, attention, problem, given)
                yield _row(bound, direction, exactly, device, effort)
            except KernelUnavailableError as error:
                yield Row(direction, method.name, problem, "unavailable", str(error))
            except Exception as error:  # whatever a method raises belongs in its row; the others go on
                text = f"{type(error).__name__}: {error}".splitlines()[0]
                yield Row(direction, method.name, problem, "failed", text)


def run(
    methods: Sequence[Method],
    problems: Sequence[Problem],
    directions: Sequence[str],
    device: torch.device,
    effort: Effort,
    say: Callable[[str], None] = lambda text: None,
) -> list[Row]:
    """Every method on every shape in each direction, checked and timed."""
    rows = []
    for problem in problems:
        started = time.perf_counter()
        given = draw(problem, device)
        exactly = exact(problem, given[0], given[1] if "backward" in directions else None)
        synchronize(device)
        say(f"{problem.name}: float32 reference in {time.perf_counter() - started:.1f} s")
        for method in methods:
            for row in _one(method, problem, directions, (device, effort), exactly, given):
                rows.append(row)
                if row.status != "unavailable":  # the report says it once
                    what = f"{row.timing.median_ms:.3f} ms" if row.timing else f"{row.status}: {row.detail}"
                    say(f"{problem.name} {row.direction} {method.name}: {what}")
            if device.type == "cuda":
                torch.cuda.empty_cache()
    return rows
