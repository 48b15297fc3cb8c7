"""No kernel of the usual head dims touches scratch memory in its main loop: spills there are what makes RDNA 4 slow."""

from __future__ import annotations

import pytest

from scripts.buildlib.kernel_tables import find_objdump, make_report
from tests.conftest import ENVIRONMENT

TILED = ("fmha_fwd_", "fmha_bwd_")
USUAL = ("_d64_", "_d128_")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("gfx", ["gfx1200", "gfx1201"])
def test_no_scratch_in_the_main_loop(gfx: str) -> None:
    objdump = find_objdump()
    if objdump is None:
        pytest.skip("no llvm-objdump on PATH; FLASH_ATTN_ROCM_LLVM_OBJDUMP names one")
    report = make_report(ENVIRONMENT / "share" / "flash_attn_rocm", gfx, objdump)
    kernels = [
        row for row in report["kernels"] if row["name"].startswith(TILED) and any(d in row["name"] for d in USUAL)
    ]
    assert kernels
    for row in kernels:
        assert row["main_loop"]["matrix"] > 0, row["name"]
        assert row["main_loop"]["scratch"] == 0, row["name"]
