"""WMMA with the register layouts of AMD's matrix_instruction_calculator, against an fp64 product."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from tests.isa.attention import from_bits, to_bits
from tests.isa.conftest import RDNA, has
from tests.isa.hip_runtime import Hip, HipError, pointers


@dataclass(frozen=True)
class Layout:
    """Where the elements of the matrices are. `k`: the k of (lane, register, half); `row`: the row of C and D of (lane,
    register); rows of A and columns of all others are lane % 16."""

    registers: int  # of A and B
    k: Callable[[int, int, int], int]
    row: Callable[[int, int], int]

    def pack(self, matrix: np.ndarray) -> np.ndarray:
        """(16 rows, 16 k) 16-bit values as the registers of A, or of B from its transpose."""
        words = np.zeros((32, self.registers), np.uint32)
        for lane, g, half in product(range(32), range(self.registers), range(2)):
            words[lane, g] |= np.uint32(int(matrix[lane % 16, self.k(lane, g, half)]) << (16 * half))
        return words

    def accumulator(self, matrix: np.ndarray) -> np.ndarray:
        """(16, 16) elements as 8 registers a lane."""
        return np.array([[matrix[self.row(lane, g), lane % 16] for g in range(8)] for lane in range(32)])

    def matrix(self, registers: np.ndarray) -> np.ndarray:
        result = np.zeros((16, 16), registers.dtype)
        for lane, g in product(range(32), range(8)):
            result[self.row(lane, g), lane % 16] = registers[lane, g]
        return result


RDNA4 = Layout(
    4, lambda lane, g, half: 8 * (g // 2) + 4 * (lane // 16) + 2 * (g % 2) + half, lambda lane, g: 8 * (lane // 16) + g
)
RDNA3 = Layout(8, lambda lane, g, half: 2 * g + half, lambda lane, g: 2 * g + lane // 16)
NAMES = {"fp16": "f16", "bf16": "bf16"}


@pytest.fixture
def layout(rdna: str) -> Layout:
    return RDNA4 if has(rdna, "GFX12") else RDNA3


@pytest.fixture
def code(isa_kernels: Path, rdna: str) -> Path:
    return isa_kernels / f"{rdna}_matrix.co"


def run_words(hip: Hip, code: Path, kernel: str, inputs: list[np.ndarray]) -> np.ndarray:
    """The 8 registers of D per lane."""
    result = hip.buffer(np.zeros((32, 8), np.uint32))
    buffers = [hip.buffer(data) for data in inputs]
    try:
        hip.launch(hip.kernel(code, kernel), pointers(result, *buffers))
        return result.read()
    finally:
        for buffer in [result, *buffers]:
            buffer.free()


def run(hip: Hip, code: Path, layout: Layout, kernel: str, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    inputs = [layout.pack(a), layout.pack(b.T), layout.accumulator(c.astype(np.float32))]
    return layout.matrix(run_words(hip, code, kernel, inputs).view(np.float32))


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("zero_c", [False, True])
def test_product(hip: Hip, code: Path, layout: Layout, dtype: str, zero_c: bool) -> None:
    """Within the rounding of 17 f32 additions; exec, of which the kernel leaves 8 lanes, does not matter."""
    generator = np.random.default_rng(11)
    a, b = (to_bits(generator.standard_normal((16, 16)), dtype) for _ in range(2))
    c = generator.standard_normal((16, 16)).astype(np.float32)
    name = f"wmma_zero_{NAMES[dtype]}" if zero_c else f"wmma_{NAMES[dtype]}"
    got = run(hip, code, layout, name, a, b, c)
    exact = from_bits(a, dtype) @ from_bits(b, dtype) + (0 if zero_c else c)
    magnitude = np.abs(from_bits(a, dtype)) @ np.abs(from_bits(b, dtype)) + np.abs(c)
    assert np.abs(got - exact).max() <= (17 * 2.0**-24 * magnitude).max()


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_every_element_has_its_place(hip: Hip, code: Path, layout: Layout, dtype: str) -> None:
    """One-hot A and B give exact products, so a wrong row, column or k shows as a wrong integer."""
    a, b = np.zeros((16, 16)), np.zeros((16, 16))
    for i in range(16):
        a[i, (5 * i + 3) % 16] = i + 1
        b[i, (7 * i + 2) % 16] = 2 * i + 1
    c = np.arange(256, dtype=np.float32).reshape(16, 16)
    got = run(hip, code, layout, f"wmma_{NAMES[dtype]}", to_bits(a, dtype), to_bits(b, dtype), c)
    np.testing.assert_array_equal(got, a @ b + np.arange(256).reshape(16, 16))


def test_special_values(hip: Hip, code: Path, layout: Layout) -> None:
    """f16 denormals count; infinity and NaN reach their row and column only."""
    a, b = np.zeros((16, 16)), np.eye(16)
    a[0, 0], a[1, 1], a[2, 2] = 2.0**-24, np.inf, np.nan
    got = run(hip, code, layout, "wmma_zero_f16", to_bits(a, "fp16"), to_bits(b, "fp16"), np.zeros((16, 16)))
    assert got[0, 0] == np.float32(2.0**-24)
    assert got[1, 1] == np.inf
    assert np.isnan(got[2]).all()
    assert np.isnan(np.delete(got[1], 1)).all()  # infinity times zero
    assert (np.delete(got[0], 0) == 0).all()
    assert (got[3:] == 0).all()


REPEATED = [gpu for gpu in RDNA if not has(gpu, "GFX12")]


@pytest.mark.parametrize("rdna", REPEATED, indirect=True)
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("form", ["low", "high", "one"])
def test_half_accumulator(hip: Hip, code: Path, layout: Layout, dtype: str, form: str) -> None:
    """16-bit C and D in the halves that op_sel names; the others stay. An inline constant has the matrix's type."""
    generator = np.random.default_rng(12)
    a, b, c, rest = (to_bits(generator.standard_normal((16, 16)), dtype) for _ in range(4))
    words = c.astype(np.uint32) << 16 | rest if form == "high" else c | rest.astype(np.uint32) << 16
    inputs = [layout.pack(a), layout.pack(b.T), layout.accumulator(words)]
    got = layout.matrix(run_words(hip, code, f"wmma_{form}_{NAMES[dtype]}", inputs))
    low, high = (got & 0xFFFF).astype(np.uint16), (got >> 16).astype(np.uint16)
    result, kept = (high, low) if form == "high" else (low, high)
    np.testing.assert_array_equal(kept, rest)
    exact = from_bits(a, dtype) @ from_bits(b, dtype) + (1 if form == "one" else from_bits(c, dtype))
    step = {"fp16": 2.0**-11, "bf16": 2.0**-8}[dtype]
    assert (np.abs(from_bits(result, dtype) - exact) <= step * np.abs(exact) + 1e-5).all()


@pytest.mark.parametrize("rdna", REPEATED, indirect=True)
@pytest.mark.parametrize("operand", [0, 1])
def test_operands_must_be_repeated(hip: Hip, code: Path, layout: Layout, operand: int) -> None:
    """Lanes 16-31 of A and B repeat lanes 0-15 (RDNA3 ISA guide 7.9): one bit that differs is a fault."""
    inputs = [layout.pack(np.ones((16, 16), np.uint16)) for _ in range(2)] + [np.zeros((32, 8), np.float32)]
    run_words(hip, code, "wmma_f16", inputs)
    inputs[operand][21, 3] ^= 1 << 17
    with pytest.raises(HipError) as caught:
        run_words(hip, code, "wmma_f16", inputs)
    register = 16 + 8 * operand + 3
    assert f"lanes 16-31 of v{register} do not repeat lanes 0-15" in caught.value.fault
