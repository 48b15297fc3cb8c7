"""Measure what a call costs on the host, from Python to the kernel launch, with a HIP runtime that does nothing.

Autograd is off. Beside our functions, in the same run: an op of torch that only makes one tensor, torch's own
attention, and our op below all Python code. Times are the least of many short runs, in microseconds, so that a busy
machine shows the same as an idle one. The tensors lie in host memory, whose registration for the emulated GPU is part
of the figures; a real GPU needs none.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from flash_attn_rocm.console import make_console  # noqa: E402

GPU = "gfx1201"
GOAL_US = 20.0


@dataclass(frozen=True)
class Row:
    """One call: microseconds, tensors made (results and workspace), kernel launches."""

    call: str
    us: float
    tensors: int
    launches: int


def least_time(function: Callable[[], object], seconds: float) -> float:
    """Microseconds of one call: the least average of ten."""
    for _ in range(100):
        function()
    best = float("inf")
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(10):
            function()
        best = min(best, (time.perf_counter() - start) / 10)
    return best * 1e6


@contextlib.contextmanager
def without_stderr() -> Iterator[None]:
    """Drop what the profiler's C++ part writes there about itself."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as nothing:
            os.dup2(nothing.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def tensors_made(function: Callable[[], object]) -> int:
    """Allocations of the CPU allocator in one call; empty tensors are none."""
    import torch

    with without_stderr(), torch.profiler.profile(profile_memory=True) as profile:
        function()
    return sum(event.name() == "[memory]" and event.nbytes() > 0 for event in profile.profiler.kineto_results.events())


def launches(function: Callable[[], object]) -> int:
    """Kernel launches of one call."""
    from flash_attn_rocm import ops

    def total() -> int:
        return sum(json.loads(ops.read_json("fa_rocm_launch_counts")).values())

    before = total()
    function()
    return total() - before


def calls() -> dict[str, Callable[[], object]]:
    """The calls that are timed, by name."""
    import torch
    import torch.nn.functional as F

    from flash_attn_rocm import backends, flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache

    backends.prepare("cpu", None)
    like = {"dtype": torch.bfloat16}
    q, k = torch.zeros(2, 128, 8, 64, **like), torch.zeros(2, 128, 2, 64, **like)
    starts = torch.tensor([0, 128, 256], dtype=torch.int32)
    packed = (q.flatten(0, 1), k.flatten(0, 1), k.flatten(0, 1), starts, starts, 128, 128)
    step, new, lengths = q[:, :1].contiguous(), k[:, :1].contiguous(), torch.tensor([5, 100], dtype=torch.int32)
    pages, table = k.view(16, 16, 2, 64), torch.arange(16, dtype=torch.int32).view(2, 8)
    small = torch.zeros(1, 1, 1, 64, **like)

    def below_python() -> object:
        with torch._C._AutoDispatchBelowAutograd():
            return torch.ops.flash_attn_rocm.fwd(q, k, k, None, None, softmax_scale=0.125, window_right=0)

    return {
        "torch.empty_like, an op that does nothing else": lambda: torch.empty_like(q),
        "torch's attention, 1 query, 1 key": lambda: F.scaled_dot_product_attention(small, small, small),
        "our op fwd, from Python without checks": below_python,
        "flash_attn_func": lambda: flash_attn_func(q, k, k, causal=True),
        "flash_attn_varlen_func": lambda: flash_attn_varlen_func(*packed, causal=True),
        "flash_attn_with_kvcache": lambda: flash_attn_with_kvcache(step, k, k, cache_seqlens=lengths),
        "flash_attn_with_kvcache, append": lambda: flash_attn_with_kvcache(step, k, k, new, new, cache_seqlens=lengths),
        "flash_attn_with_kvcache, pages": lambda: flash_attn_with_kvcache(
            step, pages, pages, cache_seqlens=lengths, block_table=table
        ),
    }


def measure(seconds: float) -> list[Row]:
    """Time every call."""
    import torch

    torch.set_num_threads(1)
    with torch.no_grad():
        return [
            Row(name, least_time(function, seconds), tensors_made(function), launches(function))
            for name, function in calls().items()
        ]


def point_at_build(directory: Path) -> None:
    """Let the package use the build's library and kernels, and a HIP runtime that does nothing."""
    from tests.api.fake_runtime import build_fake_hip
    from tests.conftest import installed_package  # points the variables at what is installed

    if installed_package() is None and "FLASH_ATTN_ROCM_LIBRARY" not in os.environ:
        sys.exit("nothing is built; run ./pixiw run build first")
    os.environ |= {
        "FLASH_ATTN_ROCM_EMULATE": GPU,
        "FLASH_ATTN_ROCM_HIP_LIBRARY": str(build_fake_hip(directory, quiet=True)),
        # A real GPU's lengths are not looked at either.
        "FLASH_ATTN_ROCM_CHECK_VALUES": "0",
    }


def report(rows: list[Row]) -> None:
    """The table."""
    table = Table("call", "us", "tensors made", "launches", title=f"host cost of a call (goal: {GOAL_US:.0f} us)")
    for row in rows:
        table.add_row(row.call, f"{row.us:.1f}", str(row.tensors), str(row.launches))
    make_console().print(table)


def main(arguments: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="pixiw run bench-host", description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each call (default: 0.5)")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="bench-host-") as directory:
        point_at_build(Path(directory))
        rows = measure(options.seconds)
    report(rows)
    if options.json:
        rows_as_json: list[dict[str, Any]] = [asdict(row) for row in rows]
        options.json.write_text(json.dumps(rows_as_json, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
