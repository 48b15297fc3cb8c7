"""Times a call: warm-up, then single runs by the GPU's own clock, with median and spread."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

_LEAST_SAMPLES, _MOST_SAMPLES = 10, 200


@dataclass(frozen=True)
class Effort:
    """How long to warm up and to measure, in seconds of run time."""

    warmup_s: float = 0.5
    measure_s: float = 1.0


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one run: median, the 10th and 90th percentile, and how many runs."""

    median_ms: float
    p10_ms: float
    p90_ms: float
    samples: int

    @property
    def spread(self) -> float:
        """(p90 - p10) / median."""
        return (self.p90_ms - self.p10_ms) / self.median_ms


def summarise(samples_ms: list[float]) -> Timing:
    """Median and percentiles of at least two runs."""
    deciles = statistics.quantiles(samples_ms, n=10, method="inclusive")
    return Timing(statistics.median(samples_ms), deciles[0], deciles[-1], len(samples_ms))


def _warm_up(call: Callable[[], object], device: torch.device, seconds: float) -> float:
    """Run until the time is over; the mean seconds of a run, the first (which compiles and loads) left out."""
    call()
    synchronize(device)
    runs, start = 0, time.perf_counter()
    while runs < 2 or time.perf_counter() - start < seconds:
        call()
        synchronize(device)
        runs += 1
    return (time.perf_counter() - start) / runs


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has done what was asked of it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _on_gpu(call: Callable[[], object], device: torch.device, runs: int) -> list[float]:
    with torch.cuda.device(device):
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(runs)]
        for start, end in events:
            start.record()
            call()
            end.record()
        torch.cuda.synchronize(device)
        return [float(start.elapsed_time(end)) for start, end in events]


def _on_cpu(call: Callable[[], object], runs: int) -> list[float]:
    samples = []
    for _ in range(runs):
        start = time.perf_counter()
        call()
        samples.append((time.perf_counter() - start) * 1e3)
    return samples


def measure(call: Callable[[], object], device: torch.device, effort: Effort) -> Timing:
    """Time a call that works on this device."""
    estimate = _warm_up(call, device, effort.warmup_s)
    runs = max(_LEAST_SAMPLES, min(_MOST_SAMPLES, int(effort.measure_s / estimate)))
    return summarise(_on_gpu(call, device, runs) if device.type == "cuda" else _on_cpu(call, runs))
