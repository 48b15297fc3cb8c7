"""WMMA with the register layouts of AMD's matrix_instruction_calculator for RDNA 4, against an fp64 product."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.isa.attention import from_bits, to_bits
from tests.isa.hip_runtime import Hip, pointers


def pack_rows(matrix: np.ndarray) -> np.ndarray:
    """(16 rows, 16 k) 16-bit values as 4 VGPRs: row = lane % 16, k = 8 (g / 2) + 4 (lane / 16) + 2 (g % 2) + half."""
    registers = np.zeros((32, 4), np.uint32)
    for lane in range(32):
        for g in range(4):
            for half in range(2):
                k = 8 * (g // 2) + 4 * (lane // 16) + 2 * (g % 2) + half
                registers[lane, g] |= np.uint32(int(matrix[lane % 16, k]) << (16 * half))
    return registers


def accumulator(matrix: np.ndarray) -> np.ndarray:
    """(16, 16) f32 as 8 VGPRs a lane: row = 8 (lane / 16) + g, column = lane % 16."""
    return np.array([[matrix[8 * (lane // 16) + g, lane % 16] for g in range(8)] for lane in range(32)], np.float32)


def run(hip: Hip, code: Path, kernel: str, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    result = hip.buffer(np.zeros((32, 8), np.float32))
    inputs = [hip.buffer(pack_rows(a)), hip.buffer(pack_rows(b.T)), hip.buffer(accumulator(c))]
    hip.launch(hip.kernel(code, kernel), pointers(result, *inputs))
    got = result.read()
    for buffer in [result, *inputs]:
        buffer.free()
    matrix = np.zeros((16, 16), np.float32)
    for lane in range(32):
        for g in range(8):
            matrix[8 * (lane // 16) + g, lane % 16] = got[lane, g]
    return matrix


@pytest.fixture
def code(isa_kernels: Path) -> Path:
    return isa_kernels / "gfx1201_matrix.co"


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("zero_c", [False, True])
def test_product(hip: Hip, code: Path, dtype: str, zero_c: bool) -> None:
    """Within the rounding of 17 f32 additions; exec, of which the kernel leaves 8 lanes, does not matter."""
    generator = np.random.default_rng(11)
    a, b = (to_bits(generator.standard_normal((16, 16)), dtype) for _ in range(2))
    c = generator.standard_normal((16, 16)).astype(np.float32)
    name = {"fp16": "f16", "bf16": "bf16"}[dtype]
    got = run(hip, code, f"wmma_zero_{name}" if zero_c else f"wmma_{name}", a, b, c)
    exact = from_bits(a, dtype) @ from_bits(b, dtype) + (0 if zero_c else c)
    magnitude = np.abs(from_bits(a, dtype)) @ np.abs(from_bits(b, dtype)) + np.abs(c)
    assert np.abs(got - exact).max() <= (17 * 2.0**-24 * magnitude).max()


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_every_element_has_its_place(hip: Hip, code: Path, dtype: str) -> None:
    """One-hot A and B give exact products, so a wrong row, column or k shows as a wrong integer."""
    a, b = np.zeros((16, 16)), np.zeros((16, 16))
    for i in range(16):
        a[i, (5 * i + 3) % 16] = i + 1
        b[i, (7 * i + 2) % 16] = 2 * i + 1
    name = {"fp16": "f16", "bf16": "bf16"}[dtype]
    got = run(
        hip,
        code,
        f"wmma_{name}",
        to_bits(a, dtype),
        to_bits(b, dtype),
        np.arange(256, dtype=np.float32).reshape(16, 16),
    )
    np.testing.assert_array_equal(got, a @ b + np.arange(256).reshape(16, 16))


def test_special_values(hip: Hip, code: Path) -> None:
    """f16 denormals count; infinity and NaN reach their row and column only."""
    a, b = np.zeros((16, 16)), np.eye(16)
    a[0, 0], a[1, 1], a[2, 2] = 2.0**-24, np.inf, np.nan
    got = run(hip, code, "wmma_zero_f16", to_bits(a, "fp16"), to_bits(b, "fp16"), np.zeros((16, 16)))
    assert got[0, 0] == np.float32(2.0**-24)
    assert got[1, 1] == np.inf
    assert np.isnan(got[2]).all()
    assert np.isnan(np.delete(got[1], 1)).all()  # infinity times zero
    assert (np.delete(got[0], 0) == 0).all()
    assert (got[3:] == 0).all()
