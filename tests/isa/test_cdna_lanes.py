"""gfx9: moves between lanes, register files and parts of registers, packed operands and branches, against numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.isa.cdna import GPUS, LANES, OLD, input_words, old_words, on_device, run
from tests.isa.hip_runtime import INVALID_IMAGE, Hip, HipError
from tests.isa.listings import body_of, listing_file
from tests.isa.test_cdna_memory import refused
from tests.isa.test_faults import load_with_listing, padded


@pytest.fixture(params=GPUS)
def code(isa_kernels: Path, request: pytest.FixtureRequest) -> Path:
    return isa_kernels / f"{request.param}_lanes.co"


def test_single_lanes(hip: Hip, code: Path) -> None:
    data = input_words()
    got = run(hip, code, "read_lanes", data)[0]
    assert (got[:, 0] == data[3, 0]).all()
    assert (got[:, 1] == data[0, 0]).all()
    assert (got[:, 2] == data[37, 0]).all()
    np.testing.assert_array_equal(got[:, 3], np.where(np.arange(LANES) == 41, 9, data[:, 0]))


def test_accumulation_registers(hip: Hip, code: Path) -> None:
    data, inactive = input_words(), np.arange(LANES) < 8
    got = run(hip, code, "accumulators", data)[0]
    np.testing.assert_array_equal(got[:, 0], np.where(inactive, OLD, data[:, 0]))
    np.testing.assert_array_equal(got[:, 1], np.where(inactive, 0x3F800000, data[:, 0]))
    np.testing.assert_array_equal(got[:, 2], np.where(inactive, data[:, 1], data[:, 2]))


def test_accumulation_registers_of_memory_instructions(hip: Hip, code: Path) -> None:
    data = input_words()
    got = run(hip, code, "accumulator_memory", data, OLD)[0]
    expected = old_words()
    expected[:, :2] = data[:, 1:3]
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("register", "fault"), [("v63", ""), ("v64", "uses both accumulation registers and VGPRs from v64")]
)
def test_registers_under_two_names(
    hip: Hip, code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, register: str, fault: str
) -> None:
    """VGPRs from the descriptor's accum_offset on are the accumulation registers: a kernel may not use both names."""
    image = padded(code.read_bytes())
    body = body_of(listing_file(code.parents[1] / "decoded", code.read_bytes()).read_text())
    before, kernel, after = body.partition(" accumulators\n")
    changed = after.replace("v_mov_b32_e32 v12, 0x5a5a5a5a", f"v_mov_b32_e32 {register}, 0x5a5a5a5a", 1)
    assert changed != after
    monkeypatch.setenv("FLASH_ATTN_ROCM_CACHE", str(tmp_path))
    with on_device(hip, code.name.split("_")[0]):
        module = load_with_listing(hip, tmp_path, image, before + kernel + changed)
        if not fault:
            hip.function(module, "accumulators")
            return
        with pytest.raises(HipError, match=fault) as caught:
            hip.function(module, "accumulators")
    assert caught.value.code == INVALID_IMAGE


@pytest.mark.parametrize("rows", [16, 32])
def test_swapped_rows(hip: Hip, isa_kernels: Path, rows: int) -> None:
    """Odd rows of the first register against even rows of the second."""
    data, lanes = input_words(), np.arange(LANES)
    got = run(hip, isa_kernels / "gfx950_lanes.co", f"swap_{rows}", data)[0]
    odd = (lanes & rows) != 0
    np.testing.assert_array_equal(got[:, 0], np.where(odd, data[lanes ^ rows, 1], data[:, 0]))
    np.testing.assert_array_equal(got[:, 1], np.where(odd, data[:, 1], data[lanes ^ rows, 0]))


@pytest.mark.parametrize("rows", [16, 32])
def test_swapped_rows_with_inactive_lanes(hip: Hip, isa_kernels: Path, rows: int) -> None:
    fault = "a swap of rows with inactive lanes is not documented"
    refused(hip, isa_kernels / "gfx950_lanes.co", f"swap_{rows}_of_some_lanes", fault)


def test_any_function_of_three_bits(hip: Hip, isa_kernels: Path) -> None:
    """Bit 4 a + 2 b + c of the table: 0xca is a ? b : c, 0x96 is a ^ b ^ c."""
    data = input_words()
    a, b, c = data[:, 0], data[:, 1], data[:, 2]
    got = run(hip, isa_kernels / "gfx950_lanes.co", "bitop3", data)[0]
    np.testing.assert_array_equal(got[:, 0], (a & b) | (~a & c))
    np.testing.assert_array_equal(got[:, 1], a ^ b ^ c)
    constant = np.uint32(0x0F0F0F0F)
    expected = (~a & ~b & ~constant) | (~a & ~b & constant) | (~a & b & constant) | (a & ~b & ~constant)
    np.testing.assert_array_equal(got[:, 2], expected)


def test_parts_of_registers(hip: Hip, code: Path) -> None:
    data = input_words()
    data.view(np.uint16)[:, :4] = (
        np.random.default_rng(4).standard_normal((LANES, 4)).astype(np.float16).view(np.uint16)
    )
    a, b = data[:, 0], data[:, 1]
    got = run(hip, code, "sdwa", data)[0]
    np.testing.assert_array_equal(got[:, 0], (a >> 16) + (b >> 16 & 0xFF))
    np.testing.assert_array_equal(got[:, 1], (OLD & 0xFFFF00FF) | (a >> 24 << 8))
    np.testing.assert_array_equal(got[:, 2], (a & 0xFFFF) << (b & 31) << 16)
    halves = data.view(np.float16)
    total = (halves[:, 1] + halves[:, 2]).view(np.int16).astype(np.int32).view(np.uint32)
    np.testing.assert_array_equal(got[:, 3], total)
    compared = run(hip, code, "sdwa_compare", data)[0]
    np.testing.assert_array_equal(compared[:, 0], (a >> 8 & 0xFF) < (b >> 16))


def test_packed_components(hip: Hip, code: Path) -> None:
    values = np.random.default_rng(5).standard_normal((LANES, 4)).astype(np.float32)
    got = run(hip, code, "packed", values.view(np.uint32))[0].view(np.float32)
    first, second = values[:, :2], values[:, 2:]
    np.testing.assert_array_equal(got[:, 0], first[:, 1] - second[:, 0])
    np.testing.assert_array_equal(got[:, 1], second[:, 1] - first[:, 0])
    np.testing.assert_array_equal(got[:, 2:], first * np.float32(3))


def test_packed_halves(hip: Hip, code: Path) -> None:
    values = np.random.default_rng(6).standard_normal((LANES, 8)).astype(np.float16)
    got = run(hip, code, "packed_halves", values.view(np.uint32))[0]
    a, b = values[:, :2], values[:, 2:4]
    halves = got.view(np.float16)
    np.testing.assert_array_equal(halves[:, 0], a[:, 1] - b[:, 0])
    np.testing.assert_array_equal(halves[:, 1], b[:, 1] - a[:, 0])
    np.testing.assert_array_equal(halves[:, 2:4], a * np.float16(2))
    np.testing.assert_array_equal(halves[:, 4], a[:, 1])
    np.testing.assert_array_equal(halves[:, 5], b[:, 0])


def test_mode(hip: Hip, code: Path) -> None:
    assert (run(hip, code, "mode", input_words())[0][:, 0] == 0xF0).all()


def test_branches(hip: Hip, code: Path) -> None:
    """A bit for each branch that went where its condition says."""
    assert (run(hip, code, "branches", input_words())[0][:, 0] == (1 << 11) - 1).all()


def kernels(gfx: str) -> set[str]:
    """What these tests launch, for test_cdna_evidence.py."""
    return {"read_lanes", "accumulators", "branches", "mode"} | ({"swap_16", "swap_32"} if gfx == "gfx950" else set())
