"""Mutants of one of AMD's hand-written gfx942 forward kernels: MFMA, loads into LDS, two groups of waves in turns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from flash_attn_rocm.reference import Mask, Scoring, compare
from tests.isa.aiter_forward import forward_launch
from tests.isa.aiter_kernels import Problem, metadata, pack_arguments
from tests.isa.hip_runtime import Hip, Pointer
from tests.isa.mutation import Bench, as_tensor


def without_labels(listing: str) -> str:
    """The listing with all its code under the first symbol: what follows are labels of the one kernel."""
    head, first, *rows = listing.splitlines()
    return "\n".join([head, first, *(row for row in rows if not row.startswith("@"))])


class AiterBench(Bench):
    """A golden forward kernel on problems of one sequence length per batch."""

    def __init__(self, hip: Hip, path: Path, problems: Sequence[Problem], listing: str, cache: Path) -> None:
        self.metadata = metadata(path)
        super().__init__(hip, path, self.metadata[".name"], without_labels(listing), cache, len(problems))
        # Half of the registers are accumulation registers.
        half = self.metadata[".vgpr_count"] // 2
        self.limits = {"v": half, "a": half, "s": self.metadata[".sgpr_count"] - 2}
        self.cases = problems
        self.launches = [forward_launch(hip, problem, group=False) for problem in problems]

    def run(self, handle: tuple[Pointer, Pointer], number: int) -> tuple[np.ndarray, np.ndarray]:
        launch = self.launches[number]
        for name in ("R", "LSE"):
            buffer = launch.buffers[name]
            self.hip.call("hipMemset", Pointer(buffer.address), 0x7F, buffer.bytes)
        block = tuple(self.metadata[".reqd_workgroup_size"])
        self.hip.launch(handle[1], pack_arguments(self.metadata, launch.values), launch.grid, block)
        return launch.buffers["R"].read(), launch.buffers["LSE"].read()

    def passes(self, number: int, output: np.ndarray, lse: np.ndarray) -> bool:
        problem = self.cases[number]
        batch, rows = len(problem.q), problem.q[0]
        shapes = {"q": rows, "k": problem.k[0], "v": problem.k[0]}
        tensors = [as_tensor(problem.tensors[name], "bf16") for name in shapes]
        q, k, v = (
            tensor.view(batch, length, *tensor.shape[1:])
            for tensor, length in zip(tensors, shapes.values(), strict=True)
        )
        scoring = Scoring(problem.scale, Mask(problem.mask.left, problem.mask.right))
        got = as_tensor(output, "bf16").view(batch, rows, *output.shape[1:])
        return compare(got, torch.from_numpy(lse), q, k, v, scoring).passed
