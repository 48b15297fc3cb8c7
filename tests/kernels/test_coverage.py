"""Every kernel of kernels.json is executed: each is called with a problem that the documented rules send to it alone.

The rules (README, ck/variants.toml): the smallest head dim that holds the problem's; a kernel without mask when no
window hides a key and there is one; no padding when lengths are whole tiles, else seqlen padding; full padding when the
head dim is smaller than the tile's; of the kernels for pages, the one with the longest steps that fit a page.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import BUILD_FIRST, EMULATED_GPU, ENVIRONMENT
from tests.kernels.feature_reference import Features
from tests.kernels.test_backward import make, run_varlen_backward
from tests.kernels.test_backward import run_batch as run_batch_backward
from tests.kernels.test_features import load_ops, normal, run_batch, run_varlen
from tests.kernels.test_kvcache import Case, run

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
Kernel = dict[str, Any]


def installed_kernels() -> list[Kernel]:
    """Rows of the tested GPU's kernels.json in build/env."""
    manifest = ENVIRONMENT / "share" / "flash_attn_rocm" / EMULATED_GPU / "kernels.json"
    return list(json.loads(manifest.read_text(encoding="utf-8"))["kernels"]) if manifest.exists() else []


KERNELS = installed_kernels()


def launch_counts() -> dict[str, int]:
    """Launches so far in this process, by kernel name, as the host library counts them."""
    from flash_attn_rocm import ops

    return dict(json.loads(ops.read_json("fa_rocm_launch_counts")))


def launched_by(call: Callable[[], object]) -> set[str]:
    """Names of the kernels that a call launches."""
    from flash_attn_rocm.backends import ck

    ck.prepare()
    before = launch_counts()
    call()
    after = launch_counts()
    return {name for name in after if after[name] > before.get(name, 0)}


def features_of(kernel: Kernel) -> tuple[Features, torch.Tensor | None]:
    """Exactly the features of a kernel, and the slopes of its 2 heads."""
    features = Features(
        causal=kernel["mask"], softcap=3.0 if kernel["softcap"] else 0.0, dropout_p=0.3 if kernel["dropout"] else 0.0
    )
    return features, torch.tensor([0.1, 0.3]) if kernel["bias"] == "alibi" else None


def call_forward(kernel: Kernel, device: str) -> None:
    """A problem that only this forward kernel should get."""
    dtype = DTYPES[kernel["dtype"]]
    # One less than the tile's head dim is more than that of the next smaller tile.
    hdim = kernel["hdim_q"] - (kernel["padding"] == "full")
    ragged = kernel["padding"] != "none"
    seqlen_q, seqlen_k = 2 * kernel["tile_m"] + ragged, 3 * kernel["tile_n"] - ragged
    features, slopes = features_of(kernel)
    if kernel["mode"] == "group":
        run_varlen(device, [(seqlen_q, seqlen_k), (3, 4)], features, hdim=hdim, dtype=dtype, slopes=slopes)
        return
    q = normal(1, seqlen_q, 2, hdim, dtype=dtype)
    k, v = (normal(1, seqlen_k, 1, hdim, dtype=dtype, seed=seed) for seed in (1, 2))
    run_batch(device, q, k, v, features, slopes)


def call_split(kernel: Kernel, device: str) -> None:
    """A problem that only this split-KV kernel should get: several queries, so that no heads are packed."""
    features, slopes = features_of(kernel)
    hdim = kernel["hdim_q"] - (kernel["padding"] == "full")
    # Kernels for pages of 64 rows win where they fit; 48 is a multiple of 16 only.
    page = {0: 0, 16: 48, 64: 128}[kernel["page"]]
    case = Case(
        lengths=(3 * kernel["tile_n"] - 1, 5),
        capacity=384,
        page=page,
        seqlen_q=kernel["tile_m"] + 1,
        heads=(2, 1),
        hdim=hdim,
        dtype=DTYPES[kernel["dtype"]],
        features=features,
        slopes=slopes,
        num_splits=2,
    )
    run(device, case)


def call_cache(kernel: Kernel, device: str) -> None:
    """An append to a cache prepares it, and its parts are joined."""
    run(device, Case(hdim=40, dtype=DTYPES[kernel["dtype"]], new=2, seqlen_q=2, features=Features(causal=True)))


def call_backward(kernel: Kernel, device: str) -> None:
    """A problem that only this backward kernel should get; several query heads for a key head."""
    hdim = kernel["hdim_q"] - 8 * (kernel["padding"] == "full")
    features, slopes = features_of(kernel)
    dtype = DTYPES[kernel["dtype"]]
    if kernel["mode"] == "group":
        own = None if slopes is None else slopes.repeat(3, 2)
        lengths, ordered = [(70, 90), (0, 3), (3, 4)], kernel["deterministic"]
        run_varlen_backward(device, lengths, features, hdim=hdim, dtype=dtype, slopes=own, deterministic=ordered)
        return
    tensors = make(1, (2 * kernel["tile_m"] + 1, 2 * kernel["tile_n"] - 1), (2, 1), hdim, dtype)
    run_batch_backward(device, tensors, features, slopes=slopes, deterministic=kernel["deterministic"])


def call_any_backward(kernel: Kernel, device: str) -> None:
    """Any backward of grouped queries."""
    run_batch_backward(device, make(1, (40, 50), (2, 1), 64, DTYPES[kernel["dtype"]]), Features())


CALLS = {
    "fmha_fwd": call_forward,
    "fmha_fwd_splitkv": call_split,
    "split_combine": call_cache,
    "kv_prepare": call_cache,
    "fmha_bwd": call_backward,
    "bwd_dot": call_any_backward,
    "bwd_sum_keys": call_any_backward,
    "bwd_sum_heads": call_any_backward,
}


def test_kernels_are_installed() -> None:
    assert Path(ENVIRONMENT / "share" / "flash_attn_rocm").is_dir(), BUILD_FIRST
    assert len(KERNELS) >= 24


def test_every_kernel_has_a_call() -> None:
    """A kernel of an op that has no call here would stay unexecuted."""
    assert not [kernel["name"] for kernel in KERNELS if kernel["op"] not in CALLS]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel["name"])
def test_kernel_is_executed_and_right(kernel: Kernel, kernel_device: str) -> None:
    load_ops()
    assert kernel["name"] in launched_by(lambda: CALLS[kernel["op"]](kernel, kernel_device))
