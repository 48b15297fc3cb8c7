"""gfx9: every DPP control of wave64 against the lanes that the ISA guide names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.isa.cdna import GPUS, LANES, OLD, input_words, on_device, run
from tests.isa.hip_runtime import INVALID_IMAGE, Hip, HipError
from tests.isa.listings import body_of, listing_file
from tests.isa.test_faults import load_with_listing, padded


def within_row(shift: int) -> Callable[[int], int | None]:
    """The lane so far above in the same row of 16."""
    return lambda lane: lane + shift if 0 <= lane % 16 + shift < 16 else None


# Vega ISA guide, "DPP", and LLVM's AMDGPU operand syntax: the lane that each lane reads, or none.
SOURCES: dict[str, Callable[[int], int | None]] = {
    "quad_perm": lambda lane: lane // 4 * 4 + (3, 0, 2, 1)[lane % 4],
    "row_shl": within_row(3),
    "row_shr": within_row(-5),
    "row_ror": lambda lane: lane // 16 * 16 + (lane - 6) % 16,
    "wave_shl": lambda lane: lane + 1 if lane < 63 else None,
    "wave_rol": lambda lane: (lane + 1) % 64,
    "wave_shr": lambda lane: lane - 1 if lane > 0 else None,
    "wave_ror": lambda lane: (lane - 1) % 64,
    "row_mirror": lambda lane: lane // 16 * 16 + 15 - lane % 16,
    "row_half_mirror": lambda lane: lane // 8 * 8 + 7 - lane % 8,
    "row_bcast15": lambda lane: lane // 16 * 16 - 1 if lane >= 16 else None,
    "row_bcast31": lambda lane: 31 if lane >= 32 else None,
    "row_newbcast": lambda lane: lane // 16 * 16 + 9,
}


@pytest.mark.parametrize("gfx", GPUS)
@pytest.mark.parametrize("name", SOURCES)
def test_control(hip: Hip, isa_kernels: Path, gfx: str, name: str) -> None:
    data = input_words()
    got = run(hip, isa_kernels / f"{gfx}_dpp.co", f"dpp_{name}", data)[0]
    expected = np.full((LANES, 4), OLD, np.uint32)
    for lane in range(LANES):
        source = SOURCES[name](lane)
        value = None if source is None else data[source, 0]
        expected[lane, 0] = OLD if value is None else value
        expected[lane, 1] = 0 if value is None else value
        if lane // 16 in (1, 3) and lane % 16 // 4 in (1, 2):
            expected[lane, 2] = (int(data[lane, 1]) + int(expected[lane, 1])) % 2**32
        if lane >= 8 and source is not None and source >= 8:  # inactive lanes are no sources
            expected[lane, 3] = data[source, 0]
    np.testing.assert_array_equal(got, expected)


def test_broadcast_that_does_not_exist(
    hip: Hip, isa_kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = isa_kernels / "gfx942_dpp.co"
    image = padded(code.read_bytes())
    body = body_of(listing_file(code.parents[1] / "decoded", code.read_bytes()).read_text())
    assert "row_bcast:31" in body
    monkeypatch.setenv("FLASH_ATTN_ROCM_CACHE", str(tmp_path))
    with on_device(hip, "gfx942"):
        module = load_with_listing(hip, tmp_path, image, body.replace("row_bcast:31", "row_bcast:7"))
        hip.function(module, "dpp_row_bcast15")
        with pytest.raises(HipError, match="row_bcast:7 is not row_bcast:15 or row_bcast:31") as caught:
            hip.function(module, "dpp_row_bcast31")
    assert caught.value.code == INVALID_IMAGE
