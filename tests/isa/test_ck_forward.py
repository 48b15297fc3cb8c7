"""The real CK forward kernels, launched without the host library, against an fp64 reference with an explicit mask."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ck.plan import plan_units
from flash_attn_rocm.archs import load_arch
from tests.isa.attention import Case, Result, plain_kernels, run_forward
from tests.isa.hip_runtime import Hip

TILE_CASES = [Case(128, 128), Case(64, 256, heads=4, heads_k=2, batch=2)]  # multiples of every tile
RAGGED_CASES = [
    Case(100, 77, heads=4, heads_k=2, batch=2),
    Case(1, 130),
    Case(65, 1, heads=3, heads_k=1),
    Case(200, 333),
]
WINDOWS = [(-1, 0), (20, 0), (7, 13), (0, 0)]
EPSILON = {"fp16": 2.0**-11, "bf16": 2.0**-8}


def check(result: Result, dtype: str, label: str) -> None:
    """P and the output are rounded to the dtype: a few half-steps of the largest value; the LSE is f32."""
    worst = np.abs(result.output - result.expected).max()
    assert worst <= 2 * EPSILON[dtype] * max(1, np.abs(result.expected).max()), f"{label}: output differs by {worst}"
    empty = np.isneginf(result.expected_lse)
    assert np.isneginf(result.lse[empty]).all(), f"{label}: rows that see no key must have LSE -inf"
    difference = np.abs(result.lse[~empty] - result.expected_lse[~empty])
    assert difference.size == 0 or difference.max() <= 5e-6, f"{label}: LSE differs by {difference.max()}"


def test_every_kernel(hip: Hip, ck_manifest: tuple[Path, dict[str, Any]]) -> None:
    """Each kernel of the manifest on the shapes that its padding allows, with each window where it masks."""
    directory, manifest = ck_manifest
    kernels = plain_kernels(manifest)
    assert {(k["dtype"], k["mask"]) for k in kernels} == {(dtype, mask) for dtype in EPSILON for mask in (False, True)}
    run_all(hip, directory, manifest, kernels)


def run_all(hip: Hip, directory: Path, manifest: dict[str, Any], kernels: list[dict[str, Any]]) -> None:
    for number, kernel in enumerate(kernels):
        shapes = TILE_CASES if kernel["padding"] == "none" else [*TILE_CASES[:1], *RAGGED_CASES]
        for shape in shapes:
            for left, right in WINDOWS if kernel["mask"] else [(-1, -1)]:
                case = replace(shape, left=left, right=right)
                smaller = kernel["padding"] == "full" and shape.seqlen_q == 100
                dim = kernel["hdim_q"] - (8 if smaller else 0)
                result = run_forward(hip, directory, manifest, kernel, case, dim, seed=number)
                check(result, kernel["dtype"], f"{kernel['name']} {case} dim {dim}")


def test_kernels_of_other_gpus(hip: Hip, other_manifest: tuple[Path, dict[str, Any]]) -> None:
    """CK, on gfx11 with ck/overlay: head dims, types and kinds of masks, with every check of the emulator on."""
    directory, manifest = other_manifest
    kernels = plain_kernels(manifest)
    units = plan_units(load_arch(manifest["gfx"]), manifest["profile"])
    assert {kernel["name"] for kernel in manifest["kernels"]} == {spec.name for unit in units for spec in unit.specs}
    assert kernels
    run_all(hip, directory, manifest, kernels)


def test_results_do_not_depend_on_the_run(hip: Hip, ck_manifest: tuple[Path, dict[str, Any]]) -> None:
    """Workgroups run on several threads in any order; the results are the same to the bit."""
    directory, manifest = ck_manifest
    kernel = next(k for k in plain_kernels(manifest) if k["mask"] and k["padding"] == "seqlen")
    first, second = (
        run_forward(hip, directory, manifest, kernel, Case(200, 300, heads=4, heads_k=4, right=0), kernel["hdim_q"])
        for _ in range(2)
    )
    np.testing.assert_array_equal(first.output, second.output)
    np.testing.assert_array_equal(first.lse, second.lse)


def test_wrong_arguments_are_seen(hip: Hip, ck_manifest: tuple[Path, dict[str, Any]]) -> None:
    """The check is sharp enough: a scale without log2(e), as if the kernel used exp, gives a wrong result."""
    directory, manifest = ck_manifest
    kernel = next(k for k in plain_kernels(manifest) if not k["mask"] and k["padding"] == "none")
    result = run_forward(hip, directory, manifest, kernel, TILE_CASES[0], kernel["hdim_q"], scale_factor=math.log(2))
    with pytest.raises(AssertionError, match="output differs"):
        check(result, kernel["dtype"], "wrong scale")
