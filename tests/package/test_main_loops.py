"""No kernel of the usual head dims touches scratch memory in its main loop: spills there are what makes RDNA 4 slow.

Nor do the backward kernels of wide head dims.
"""

from __future__ import annotations

import pytest

from scripts.buildlib.kernel_tables import find_objdump, make_report
from tests.conftest import ENVIRONMENT

HEAD_DIMS = {"fmha_fwd_": ("_d64_", "_d128_"), "fmha_bwd_": ("_d64_", "_d128_", "_d192_", "_d256_")}


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("gfx", ["gfx1200", "gfx1201"])
def test_no_scratch_in_the_main_loop(gfx: str) -> None:
    objdump = find_objdump()
    if objdump is None:
        pytest.skip("no llvm-objdump on PATH; FLASH_ATTN_ROCM_LLVM_OBJDUMP names one")
    report = make_report(ENVIRONMENT / "share" / "flash_attn_rocm", gfx, objdump)
    kernels = [
        row
        for row in report["kernels"]
        for op, hdims in HEAD_DIMS.items()
        if row["name"].startswith(op) and any(hdim in row["name"] for hdim in hdims)
    ]
    assert kernels
    for row in kernels:
        assert row["main_loop"]["matrix"] > 0, row["name"]
        assert row["main_loop"]["scratch"] == 0, row["name"]
