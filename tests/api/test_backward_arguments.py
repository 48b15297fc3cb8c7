"""What backward's launches are told of the workspace: parts lie head by head, and parts of dq outermost.

Arguments are decoded at the offsets that the real kernels' records have.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.api.conftest import RunFake
from tests.api.fake_runtime import manifest

GFX = "gfx1201"
SIZES = {"batch": 2, "heads": 6, "heads_k": 2, "rows": 70, "keys": 300, "dim": 64}
PROGRAM = f"""
import torch
from flash_attn_rocm.backends import ck
ck.prepare()
b, h, hk, sq, sk, d = {tuple(SIZES[name] for name in ("batch", "heads", "heads_k", "rows", "keys", "dim"))}
q, k = torch.zeros(b, sq, h, d, dtype=torch.bfloat16), torch.zeros(b, sk, hk, d, dtype=torch.bfloat16)
torch.ops.flash_attn_rocm.bwd(q, q, k, k, q, torch.zeros(b, h, sq), softmax_scale=0.1, deterministic=True)
"""


@pytest.fixture(scope="module")
def kernels() -> dict[str, dict[str, Any]]:
    """Real rows of kernels.json by op, as of the fake code object: those of one deterministic call."""
    document = json.loads((Path(os.environ["FLASH_ATTN_ROCM_KERNELS"]) / GFX / "kernels.json").read_text())
    plain = [row for row in document["kernels"] if row["op"].startswith("bwd_") and row["dtype"] == "bf16"]
    wanted = {"op": "fmha_bwd", "deterministic": True, "mode": "batch", "hdim_q": 64, "dtype": "bf16", "dropout": False}
    rows = plain + [row for row in document["kernels"] if row.items() >= wanted.items()]
    return {row["op"]: row | {"code_object": 0} for row in rows}


@pytest.fixture(scope="module")
def launches(run_fake: RunFake, kernels: dict[str, dict[str, Any]]) -> list[tuple[str, dict[str, int]]]:
    """Op and integer arguments of every launch, in order."""
    run = run_fake(PROGRAM, document=manifest(list(kernels.values())))
    assert run.returncode == 0, run.stderr
    ops = {row["name"]: op for op, row in kernels.items()}
    found = []
    for launch in run.launches():
        op, data = ops[launch["kernel"]], bytes.fromhex(launch["arguments"])
        places = kernels[op]["args"].items()
        found.append((op, {name: int.from_bytes(data[at : at + size], "little") for name, (at, size) in places}))
    return found


def test_order_of_launches(launches: list[tuple[str, dict[str, int]]]) -> None:
    assert [op for op, _ in launches] == ["bwd_dot", "fmha_bwd", "bwd_sum_keys", "bwd_sum_heads", "bwd_sum_heads"]


def test_a_head_of_gradients_of_keys_is_one_piece(launches: list[tuple[str, dict[str, int]]]) -> None:
    """Apart by all heads, its rows would span as many times more of what 32-bit offsets reach."""
    head = SIZES["keys"] * SIZES["dim"]
    arguments = launches[1][1]
    for name in ("dk", "dv"):
        assert arguments[f"stride_{name}"] == SIZES["dim"]
        assert arguments[f"nhead_stride_{name}"] == head
        assert arguments[f"batch_stride_{name}"] == SIZES["heads"] * head
    group = SIZES["heads"] // SIZES["heads_k"]
    for (_, summed), name in zip(launches[3:], ("dk", "dv"), strict=True):
        assert summed["parts_ptr"] == arguments[f"{name}_ptr"]
        assert summed["num_splits"] == group
        assert summed["stride_parts"] == SIZES["dim"]
        assert summed["split_stride_parts"] == head
        assert summed["nhead_stride_parts"] == group * head
        assert summed["batch_stride_parts"] == SIZES["heads"] * head


def test_parts_of_dq_are_outermost(
    launches: list[tuple[str, dict[str, int]]], kernels: dict[str, dict[str, Any]]
) -> None:
    """Inside of a head or batch entry they would multiply strides that CK has in 32 bits."""
    head = SIZES["rows"] * SIZES["dim"]
    for index, prefix in ((1, "dq_acc"), (2, "parts")):
        arguments = launches[index][1]
        assert arguments[f"stride_{prefix}"] == SIZES["dim"]
        assert arguments[f"nhead_stride_{prefix}"] == head
        assert arguments[f"batch_stride_{prefix}"] == SIZES["heads"] * head
        assert arguments[f"split_stride_{prefix}"] == SIZES["batch"] * SIZES["heads"] * head
    keys_per_split = kernels["fmha_bwd"]["tile_n"]
    assert launches[2][1]["keys_per_split"] == keys_per_split
    assert launches[2][1]["num_splits"] == -(-SIZES["keys"] // keys_per_split)
