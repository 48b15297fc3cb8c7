"""The real CK backward kernels, launched without the host library, against fp64 gradients with an explicit mask."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ck.variants import load_variants
from flash_attn_rocm.archs import load_archs
from tests.isa.attention import Case, from_bits
from tests.isa.attention_backward import Gradients, fill_arguments, run_backward
from tests.isa.conftest import GFX
from tests.isa.hip_runtime import Hip

CASES = [Case(64, 128), Case(100, 77, heads=4, heads_k=2, batch=2), Case(1, 130), Case(65, 1, heads=3, heads_k=1)]
WINDOWS = [(-1, 0), (20, 0), (7, 13)]
EPSILON = {"fp16": 2.0**-11, "bf16": 2.0**-8}
# Further GPUs that get backward kernels in the default build.
TRAINED = [
    gfx
    for gfx in load_archs()
    if gfx != GFX and any(variant.op == "fmha_bwd" for variant in load_variants().of_profile("ci", gfx))
]


def plain_kernels(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """The kernels whose arguments run_backward fills."""
    return [
        kernel
        for kernel in manifest["kernels"]
        if kernel["op"] == "fmha_bwd"
        and kernel["mode"] == "batch"
        and kernel["bias"] == "none"
        and not kernel["dropout"]
    ]


def check(result: Gradients, dtype: str, label: str) -> None:
    """P, dS and the gradients of keys are rounded to the dtype: a few half-steps of the largest value."""
    for name in ("dq", "dk", "dv"):
        got, expected = getattr(result, name), getattr(result.expected, name)
        worst = np.abs(got - expected).max()
        assert worst <= 2 * EPSILON[dtype] * max(1, np.abs(expected).max()), f"{label}: {name} differs by {worst}"


def test_sums_of_parts_stop_at_the_last_one(hip: Hip, ck_manifest: tuple[Path, dict[str, Any]]) -> None:
    """A sequence of 300 keys where the caller promised 64: there are two parts of 32 keys, and no more are read."""
    directory, manifest = ck_manifest
    kernel = next(kernel for kernel in manifest["kernels"] if kernel["op"] == "bwd_sum_keys")
    parts = np.random.default_rng(1).standard_normal((2, 5, 64)).astype(np.float32)
    buffers = [hip.buffer(data) for data in (parts, np.zeros((5, 64), np.uint16), np.array([0, 5, 0, 300], np.int32))]
    values = dict.fromkeys(kernel["args"], 0) | {
        "parts_ptr": buffers[0].address,
        "sum_ptr": buffers[1].address,
        "seqstart_q_ptr": buffers[2].address,
        "seqstart_k_ptr": buffers[2].address + 8,
        "stride_parts": 64,
        "stride_sum": 64,
        "split_stride_parts": 5 * 64,
        "hdim_q": 64,
        "num_splits": 2,
        "keys_per_split": 32,
    }
    function = hip.kernel(directory / manifest["code_objects"][kernel["code_object"]]["file"], kernel["name"])
    hip.launch(function, fill_arguments(kernel, values), (2, 1, 1), (kernel["block_threads"], 1, 1))
    got = from_bits(buffers[1].read(), kernel["dtype"])
    expected = parts[0].astype(np.float64) + parts[1]
    assert (np.abs(got - expected) <= EPSILON[kernel["dtype"]] * np.abs(expected)).all()
    for buffer in buffers:
        buffer.free()


def test_every_plain_kernel(hip: Hip, ck_manifest: tuple[Path, dict[str, Any]]) -> None:
    """Each kernel on lengths that are no multiples of its tile, with each window where it masks."""
    directory, manifest = ck_manifest
    kernels = plain_kernels(manifest)
    assert {kernel["dtype"] for kernel in kernels} == set(EPSILON)
    assert {kernel["deterministic"] for kernel in kernels} == {False, True}
    run_all(hip, directory, manifest, kernels)


def run_all(hip: Hip, directory: Path, manifest: dict[str, Any], kernels: list[dict[str, Any]]) -> None:
    for number, kernel in enumerate(kernels):
        path = directory / manifest["code_objects"][kernel["code_object"]]["file"]
        dim = kernel["hdim_q"] - (8 if kernel["padding"] == "full" else 0)
        for shape in CASES:
            for left, right in WINDOWS if kernel["mask"] else [(-1, -1)]:
                case = replace(shape, left=left, right=right)
                result = run_backward(hip, path, kernel, case, dim, seed=number)
                check(result, kernel["dtype"], f"{kernel['name']} {case} dim {dim}")


@pytest.mark.parametrize("other_manifest", TRAINED, indirect=True)
def test_kernels_of_other_gpus(hip: Hip, other_manifest: tuple[Path, dict[str, Any]]) -> None:
    """P and dS stay in registers on CDNA, and go through LDS on RDNA 3."""
    directory, manifest = other_manifest
    kernels = plain_kernels(manifest)
    assert kernels
    run_all(hip, directory, manifest, kernels)
