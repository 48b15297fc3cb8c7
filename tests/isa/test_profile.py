"""Executed instructions by class: of a kernel whose instructions are counted by hand, and of CK from its tiles."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.isa.attention import Case, plain_kernels, run_forward
from tests.isa.hip_runtime import Hip

# Of one wave of the kernel "counted" in kernels/rdna/checks.s, from its text: two rounds of a loop.
COUNTED = {
    "matrix": 1,
    "valu": 4,  # the VOPD pair is one instruction
    "lds": 2 + 1,
    "global": 3,
    "scratch": 2,
    "scalar": 2 + 2 * 2,
    "branch": 2 + 1,
    "wait": 3,
    "hint": 3,
}


def profile(hip: Hip) -> dict[str, dict[str, Any]]:
    report = json.loads(hip.library.flash_attn_rocm_emulator_profile())
    return {row["name"]: row for row in report["kernels"]}


@pytest.mark.parametrize(("groups", "waves"), [(1, 1), (3, 2)])
def test_counts_of_a_counted_kernel(hip: Hip, isa_kernels: Path, groups: int, waves: int) -> None:
    before = profile(hip).get("counted", {"launches": 0, "executed": dict.fromkeys(COUNTED, 0)})
    executed = hip.executed()
    buffer = hip.buffer(np.zeros(1024, np.uint32))
    hip.launch(
        hip.kernel(isa_kernels / "gfx1201_checks.co", "counted"),
        struct.pack("<Q", buffer.address).ljust(32, b"\0"),
        (groups, 1, 1),
        (32 * waves, 1, 1),
    )
    buffer.free()
    after = profile(hip)["counted"]
    assert after["gfx"] == "gfx1201"
    assert after["launches"] - before["launches"] == 1
    counts = {name: after["executed"][name] - before["executed"][name] for name in COUNTED}
    assert counts == {name: count * groups * waves for name, count in COUNTED.items()}
    assert set(after["executed"]) == set(COUNTED)
    assert hip.executed() - executed == sum(counts.values())


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_matrix_instructions_of_ck(hip: Hip, ck_manifest: tuple[Path, dict[str, Any]], dtype: str) -> None:
    """Q K^T and P V of every tile, 16 x 16 x 16 products each."""
    directory, manifest = ck_manifest
    kernel = next(
        k for k in plain_kernels(manifest) if (k["dtype"], k["mask"], k["padding"]) == (dtype, False, "seqlen")
    )
    case, dim = Case(256, 384, heads=3, heads_k=3, batch=2), kernel["hdim_q"]
    before = profile(hip).get(kernel["name"], {"executed": {"matrix": 0}})
    run_forward(hip, directory, manifest, kernel, case, dim)
    count = profile(hip)[kernel["name"]]["executed"]["matrix"] - before["executed"]["matrix"]
    products = case.batch * case.heads * (case.seqlen_q // 16) * (case.seqlen_k // 16) * (dim // 16)
    assert count == 2 * products
