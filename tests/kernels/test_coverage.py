"""Every kernel of kernels.json is executed: each is called with a problem that the documented rules send to it alone.

The rules (README, ck/variants.toml): the smallest head dim that holds the problem's; a mask kernel when a window hides
a key; no padding when lengths are whole tiles, else seqlen padding; full padding when the head dim is smaller than the
tile's.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import BUILD_FIRST, ENVIRONMENT
from tests.kernels.test_forward import Case, check

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


def installed_kernels() -> list[dict[str, Any]]:
    """Rows of every kernels.json in build/env."""
    manifests = sorted((ENVIRONMENT / "share" / "flash_attn_rocm").glob("*/kernels.json"))
    return [kernel for manifest in manifests for kernel in json.loads(manifest.read_text(encoding="utf-8"))["kernels"]]


KERNELS = installed_kernels()


def launch_counts() -> dict[str, int]:
    """Launches so far in this process, by kernel name, as the host library counts them."""
    from flash_attn_rocm import ops

    return dict(json.loads(ops.read_json("fa_rocm_launch_counts")))


def problem_for(kernel: dict[str, Any], smaller_hdims: list[int]) -> Case:
    """The problem that only this kernel should get."""
    whole_tiles = kernel["padding"] == "none"
    headdim = kernel["hdim_q"]
    if kernel["padding"] == "full":
        # One less than the tile's and more than the next smaller tile's.
        headdim = max([kernel["hdim_q"] - 1, *(hdim + 1 for hdim in smaller_hdims if hdim < kernel["hdim_q"])])
    return Case(
        DTYPES[kernel["dtype"]],
        headdim,
        2 * kernel["tile_m"] + (0 if whole_tiles else 1),
        3 * kernel["tile_n"] - (0 if whole_tiles else 1),
        nheads=2,
        nheads_k=1,
        causal=kernel["mask"],
    )


def test_kernels_are_installed() -> None:
    assert Path(ENVIRONMENT / "share" / "flash_attn_rocm").is_dir(), BUILD_FIRST
    # The smoke profile of one GPU: 2 head dims x 2 dtypes x with and without mask x 3 paddings.
    assert len(KERNELS) >= 24


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel["name"])
def test_kernel_is_executed_and_right(kernel: dict[str, Any], kernel_device: str) -> None:
    case = problem_for(kernel, sorted({other["hdim_q"] for other in KERNELS}))
    name = kernel["name"]
    check(case, kernel_device)
    before = launch_counts()
    check(case, kernel_device)
    after = launch_counts()
    assert {launched for launched in after if after[launched] > before.get(launched, 0)} == {name}
