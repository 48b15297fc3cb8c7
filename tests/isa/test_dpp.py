"""Operands from other lanes (DPP), after the RDNA3 ISA guide, section 7.7."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.isa.hip_runtime import Hip
from tests.isa.lane_tests import run_lanes

LANES = 32
INACTIVE = (0, 13, 19)
SOURCE = np.random.default_rng(7).integers(0, 2**32, LANES, np.uint32)
OLD = np.random.default_rng(8).integers(0, 2**32, LANES, np.uint32)
# Lane i of a row of 16 -> the lane of the row that it reads, outside the row where it is not in 0..15.
CONTROLS: dict[str, Callable[[int], int]] = {
    "quad_perm": lambda i: i - i % 4 + (3, 0, 2, 1)[i % 4],
    "row_shl": lambda i: i + 3,
    "row_shr": lambda i: i - 15,
    "row_ror": lambda i: (i - 5) % 16,
    "row_mirror": lambda i: 15 - i,
    "row_half_mirror": lambda i: i - i % 8 + 7 - i % 8,
    "row_share": lambda i: 13,
    "row_xmask": lambda i: i ^ 9,
    "dpp8": lambda i: i - i % 8 + (7, 1, 0, 5, 2, 2, 6, 3)[i % 8],
}
OPTIONS = {
    "plain": {},
    "zero": {"bound": True},
    "fetch": {"inactive": True},
    "both": {"bound": True, "inactive": True},
    "masks": {"rows": 2, "banks": 6},
}
CASES = [(name, option) for name in CONTROLS for option in OPTIONS if name != "dpp8" or option in ("plain", "fetch")]


@pytest.fixture
def code(isa_kernels: Path, rdna: str) -> Path:
    return isa_kernels / f"{rdna}_dpp.co"


def sources(
    control: Callable[[int], int], bound: bool = False, inactive: bool = False, rows: int = 15, banks: int = 15
) -> list[int | None]:
    """The source of each active lane: a lane, -1 for the value 0, None where the lane gets no result."""
    result: list[int | None] = []
    for lane in range(LANES):
        place = control(lane % 16)
        exists = 0 <= place < 16
        source = lane - lane % 16 + place
        valid = exists and (inactive or source not in INACTIVE)
        enabled = rows >> (lane // 16) & 1 and banks >> (lane // 4 % 4) & 1 and lane not in INACTIVE
        result.append(None if not enabled or not (valid or bound) else source if valid else -1)
    return result


def from_lanes(lanes: list[int | None], old: np.ndarray) -> np.ndarray:
    """The source register as the lanes see it; `old` where they get no result."""
    picked = [old[lane] if source is None else 0 if source < 0 else SOURCE[source] for lane, source in enumerate(lanes)]
    return np.array(picked, np.uint32)


@pytest.mark.parametrize(("name", "option"), CASES)
def test_control(hip: Hip, code: Path, name: str, option: str) -> None:
    """DPP8 has no bound_ctrl: lanes that exec leaves out give 0."""
    settings = OPTIONS[option] | ({"bound": True} if name == "dpp8" else {})
    expected = from_lanes(sources(CONTROLS[name], **settings), OLD)
    np.testing.assert_array_equal(run_lanes(hip, code, f"dpp_{name}_{option}", [SOURCE, OLD], 32), expected)


def test_modifiers_apply_to_the_other_lane(hip: Hip, code: Path) -> None:
    values = np.arange(LANES, dtype=np.float32) - 9.5
    old = np.linspace(-3, 3, LANES, dtype=np.float32)
    lanes = sources(lambda i: i - 1, bound=True)
    expected = [
        old[lane] if source is None else -(0 if source < 0 else values[source]) - abs(old[lane])
        for lane, source in enumerate(lanes)
    ]
    got = run_lanes(hip, code, "dpp_neg_abs", [values.view(np.uint32), old.view(np.uint32)], 32)
    np.testing.assert_array_equal(got.view(np.float32), np.array(expected, np.float32))


def test_only_the_first_source_moves(hip: Hip, code: Path) -> None:
    lanes = sources(lambda i: i ^ 1)
    moved = from_lanes(lanes, OLD)
    result = np.where([source is None for source in lanes], OLD, (moved & OLD) | (~moved & 3))
    np.testing.assert_array_equal(run_lanes(hip, code, "dpp_three_sources", [SOURCE, OLD], 32), result)


def test_half(hip: Hip, code: Path) -> None:
    lanes = sources(lambda i: i + 2)
    moved = from_lanes(lanes, OLD)
    result = np.where([source is None for source in lanes], OLD, (OLD & 0xFFFF0000) | (moved >> 16))
    np.testing.assert_array_equal(run_lanes(hip, code, "dpp_half", [SOURCE, OLD], 32), result)


def test_carry(hip: Hip, code: Path) -> None:
    """The carry of lanes without a result is 0."""
    lanes = sources(lambda i: i - 1)
    moved = from_lanes(lanes, OLD).astype(np.uint64) + OLD + (0x0F0F0F0F >> np.arange(LANES) & 1).astype(np.uint64)
    result = np.where([source is None for source in lanes], 0, moved >> 32)
    np.testing.assert_array_equal(run_lanes(hip, code, "dpp_carry", [SOURCE, OLD], 32), result)


@pytest.mark.parametrize(
    ("name", "settings"),
    [("compare", {"rows": 3, "banks": 7}), ("compare_zero", {"bound": True}), ("compare_exec", {"inactive": True})],
)
def test_compare(hip: Hip, code: Path, name: str, settings: dict[str, int]) -> None:
    """Lanes that are off, masked or without a source give 0; FI does not turn a lane on."""
    lanes = sources(lambda i: i - 1, **settings)  # type: ignore[arg-type]
    result = np.where([source is None for source in lanes], 0, from_lanes(lanes, OLD) < OLD)
    np.testing.assert_array_equal(run_lanes(hip, code, f"dpp_{name}", [SOURCE, OLD], 32), result)
