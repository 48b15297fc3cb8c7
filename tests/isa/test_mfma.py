"""MFMA with the register layouts of AMD's matrix_instruction_calculator, against an fp64 product."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.isa.attention import from_bits, to_bits
from tests.isa.cdna import GENERATION, GPUS, LANES, on_device
from tests.isa.hip_runtime import Hip, Pointer, pointers
from tests.isa.listings import body_of, listing_file
from tests.isa.test_faults import load_with_listing, padded


@dataclass(frozen=True)
class Shape:
    """size x size results of each block from k products; dtype of A and B; the generations that have the name."""

    name: str
    size: int
    k: int
    blocks: int
    dtype: str
    generations: tuple[int, ...]

    @property
    def held(self) -> int:
        """Consecutive k in a lane."""
        return self.size * self.k * self.blocks // LANES

    @property
    def registers(self) -> int:
        return max(1, self.held // 2)

    @property
    def results(self) -> int:
        return self.size * self.size * self.blocks // LANES


def shapes() -> list[Shape]:
    result = []
    for size, k, blocks in ((32, 8, 1), (16, 16, 1), (32, 4, 2), (16, 4, 4)):
        for dtype, text in (("fp16", "f16"), ("bf16", "bf16")):
            base = f"mfma_f32_{size}x{size}x{k}"
            result.append(Shape(base + text + ("_1k" if text == "bf16" else ""), size, k, blocks, dtype, (2,)))
            parts = "" if blocks == 1 else f"_{blocks}b"
            result.append(Shape(f"{base}{parts}_{text}", size, k, blocks, dtype, (3, 4)))
    for size, k in ((32, 4), (16, 8)):
        result.append(Shape(f"mfma_f32_{size}x{size}x{k}bf16", size, k, 1, "bf16", (2,)))
    for size, k in ((32, 16), (16, 32)):
        for dtype, text in (("fp16", "f16"), ("bf16", "bf16")):
            result.append(Shape(f"mfma_f32_{size}x{size}x{k}_{text}", size, k, 1, dtype, (4,)))
    for size, k, blocks in ((32, 2, 1), (16, 4, 1), (32, 1, 2), (16, 1, 4)):
        parts = "" if blocks == 1 else f"_{blocks}b"
        result.append(Shape(f"mfma_f32_{size}x{size}x{k}f32", size, k, blocks, "fp32", (2,)))
        result.append(Shape(f"mfma_f32_{size}x{size}x{k}{parts}_f32", size, k, blocks, "fp32", (3, 4)))
    return result


CASES = [(gfx, shape) for gfx in GPUS for shape in shapes() if GENERATION[gfx] in shape.generations]


def source_registers(shape: Shape, values: np.ndarray) -> np.ndarray:
    """(blocks, size, k) raw values as [register][lane]: row or column is lane % size.

    The groups of lanes hold the next k each, or a block each.
    """
    result = np.zeros((shape.registers, LANES), np.uint32)
    for lane in range(LANES):
        group, row = divmod(lane, shape.size)
        block, first = (0, group * shape.held) if shape.blocks == 1 else (group, 0)
        for k in range(shape.held):
            raw = int(values[block, row, first + k])
            result[k // 2, lane] |= np.uint32(raw << (16 * (k % 2)))
    return result


def places(shape: Shape) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Block, row and column of each [register][lane] of C and D: four rows in four registers, then the next lanes."""
    g, lane = np.meshgrid(np.arange(shape.results), np.arange(LANES), indexing="ij")
    per_block = shape.size * shape.size // LANES
    within = g % per_block
    groups = LANES // shape.size
    row = 4 * groups * (within // 4) + 4 * (lane // shape.size) + within % 4
    return g // per_block, row, lane % shape.size


def run(hip: Hip, function: Pointer, shape: Shape, operands: list[np.ndarray]) -> np.ndarray:
    """D as (blocks, size, size), on the current device."""
    inputs = [hip.buffer(data) for data in operands]
    result = hip.buffer(np.zeros((shape.results, LANES), np.float32))
    hip.launch(function, pointers(result, *inputs), block=(LANES, 1, 1))
    raw = result.read()
    for buffer in [result, *inputs]:
        buffer.free()
    matrix = np.empty((shape.blocks, shape.size, shape.size), np.float32)
    matrix[places(shape)] = raw
    return matrix


def with_overlaps(hip: Hip, code: Path, cache: Path) -> Pointer:
    """The module whose *_overlap kernels have D from v18 and C from v16 on, by a listing in the cache."""
    body = body_of(listing_file(code.parents[1] / "decoded", code.read_bytes()).read_text())
    changed = re.sub(
        r"(v_mfma_.* v\[18:(\d+)\], .*, )v\[18:\2\]$",
        lambda found: f"{found[1]}v[16:{int(found[2]) - 2}]",
        body,
        flags=re.MULTILINE,
    )
    assert changed != body
    return load_with_listing(hip, cache, padded(code.read_bytes()), changed)


def raw_values(values: np.ndarray, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Bits, and the values that they stand for."""
    if dtype == "fp32":
        single = values.astype(np.float32)
        return single.view(np.uint32), single.astype(np.float64)
    bits = to_bits(values, dtype)
    return bits, from_bits(bits, dtype)


@pytest.mark.parametrize(("gfx", "shape"), CASES, ids=[f"{gfx}-{shape.name}" for gfx, shape in CASES])
def test_product(hip: Hip, isa_kernels: Path, gfx: str, shape: Shape) -> None:
    """Within the rounding of k + 1 f32 additions; with VGPRs (exec leaves 8 lanes, which does not matter), with
    accumulation registers, and with a constant C."""
    generator = np.random.default_rng(7)
    size = (shape.blocks, shape.size, shape.k)
    (a_raw, a), (b_raw, b) = (raw_values(generator.standard_normal(size), shape.dtype) for _ in range(2))
    c = generator.standard_normal((shape.blocks, shape.size, shape.size)).astype(np.float32)
    operands = [source_registers(shape, a_raw), source_registers(shape, b_raw), c[places(shape)]]
    product = np.einsum("bik,bjk->bij", a, b)
    bound = (shape.k + 1) * 2.0**-24 * (np.einsum("bik,bjk->bij", np.abs(a), np.abs(b)) + np.abs(c) + 1).max()
    for suffix, start in (("", c), ("_acc", c), ("_one", 1.0)):
        with on_device(hip, gfx):
            kernel = hip.kernel(isa_kernels / f"{gfx}_matrix.co", shape.name + suffix)
            got = run(hip, kernel, shape, operands)
        assert np.abs(got - (product + start)).max() <= bound, suffix


@pytest.mark.parametrize(("gfx", "shape"), CASES, ids=[f"{gfx}-{shape.name}" for gfx, shape in CASES])
def test_every_element_has_its_place(
    hip: Hip, isa_kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gfx: str, shape: Shape
) -> None:
    """Small integers give exact products, so a wrong row, column, block or k shows as a wrong integer, also where D
    begins two registers behind C: all of C is read before D is written."""
    generator = np.random.default_rng(8)
    size = (shape.blocks, shape.size, shape.k)
    a, b = (generator.integers(-8, 9, size).astype(np.float64) for _ in range(2))
    c = np.arange(shape.blocks * shape.size**2, dtype=np.float32).reshape(shape.blocks, shape.size, shape.size)
    operands = [source_registers(shape, raw_values(values, shape.dtype)[0]) for values in (a, b)]
    expected = np.einsum("bik,bjk->bij", a, b) + c
    operands.append(c[places(shape)])
    code = isa_kernels / f"{gfx}_matrix.co"
    with on_device(hip, gfx):
        np.testing.assert_array_equal(run(hip, hip.kernel(code, shape.name), shape, operands), expected)
        monkeypatch.setenv("FLASH_ATTN_ROCM_CACHE", str(tmp_path))
        overlapping = hip.function(with_overlaps(hip, code, tmp_path), f"{shape.name}_overlap")
        np.testing.assert_array_equal(run(hip, overlapping, shape, operands), expected)


def kernels(gfx: str) -> set[str]:
    """What these tests launch, for test_cdna_evidence.py."""
    return {shape.name + suffix for name, shape in CASES if name == gfx for suffix in ("", "_acc", "_one")}
