"""One source, compiled for every GPU with and without optimization: right by numpy, and the same to the last bit."""

from __future__ import annotations

import struct
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.isa.common_cases import CASES, THREADS, Case
from tests.isa.conftest import DEVICES
from tests.isa.hip_runtime import Hip, pointers

GPUS = tuple(tomllib.loads(Path(__file__).with_name("kernels").joinpath("common", "gpus.toml").read_text())["gpus"])
LEVELS = (0, 3)
BUILDS = [(gfx, level) for gfx in GPUS for level in LEVELS]


@pytest.fixture(autouse=True)
def first_device_again(hip: Hip) -> Iterator[None]:
    yield
    hip.call("hipSetDevice", 0)


@pytest.fixture(scope="module")
def results() -> dict[tuple[str, str, int], list[np.ndarray]]:
    """Outputs by case, GPU and level: each kernel runs once."""
    return {}


def run(hip: Hip, directory: Path, case: Case, gfx: str, level: int) -> list[np.ndarray]:
    """The kernel's outputs."""
    hip.call("hipSetDevice", DEVICES.index(gfx))
    initial = case.initial or [np.zeros_like(output) for output in case.expected]
    buffers = [hip.buffer(data) for data in (*initial, *case.inputs)]
    try:
        kernel = hip.kernel(directory / f"{gfx}_{case.source}_O{level}.co", case.kernel)
        arguments = pointers(*buffers) + struct.pack(f"<{len(case.numbers)}I", *case.numbers)
        hip.launch(kernel, arguments, (case.groups, 1, 1), (THREADS, 1, 1))
        return [buffer.read() for buffer in buffers[: len(initial)]]
    finally:
        for buffer in buffers:
            buffer.free()


def bits(data: np.ndarray) -> np.ndarray:
    return data.view(f"u{data.itemsize}")


@pytest.mark.parametrize(("gfx", "level"), BUILDS, ids=[f"{gfx}-O{level}" for gfx, level in BUILDS])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_kernel(hip: Hip, isa_kernels: Path, results: dict, case: Case, gfx: str, level: int) -> None:
    """Every output element against the reference: all bits where the language defines them."""
    got = results.setdefault((str(case), gfx, level), run(hip, isa_kernels, case, gfx, level))
    for output, expected in zip(got, case.expected, strict=True):
        if case.tolerance:
            np.testing.assert_allclose(output, expected, rtol=0, atol=case.tolerance)
        else:
            np.testing.assert_array_equal(bits(output), bits(expected))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_builds_agree(hip: Hip, isa_kernels: Path, results: dict, case: Case) -> None:
    """Whatever the GPU and the optimization: no operation here may be rounded in two ways."""
    got = [results.get((str(case), gfx, level)) or run(hip, isa_kernels, case, gfx, level) for gfx, level in BUILDS]
    for (gfx, level), outputs in zip(BUILDS, got, strict=True):
        for output, first in zip(outputs, got[0], strict=True):
            np.testing.assert_array_equal(bits(output), bits(first), err_msg=f"{gfx} -O{level} and {BUILDS[0]}")
