"""Forward calls whose heads are launched in groups: the same bits as in one launch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from flash_attn_rocm import ops
from tests.kernels.feature_reference import Features
from tests.kernels.test_features import SCALE, load_ops, normal, op_arguments, run_batch, starts

ROOT = Path(__file__).resolve().parents[2]
Grouped = Callable[[Callable[[], tuple[Tensor, ...]]], list[tuple[Tensor, ...]]]
KEYS, QUERIES = 1024, 150  # 256 KiB of keys and values a head
SLOPES = torch.arange(1, 13, dtype=torch.float32) / 32


@pytest.fixture
def both_ways(
    kernel_device: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Grouped]:
    """Runs a call in one launch and in groups, for a last-level cache of 1 MiB: it holds 4 heads of keys."""
    library = ops.load()

    def run(call: Callable[[], tuple[Tensor, ...]]) -> list[tuple[Tensor, ...]]:
        results = []
        for disabled in ("1", "0"):
            monkeypatch.setenv("CK_TILE_FMHA_DISABLE_HEAD_GROUPING", disabled)
            monkeypatch.setenv("CK_TILE_FMHA_LLC_CACHE_MB", "1")
            monkeypatch.setenv("CK_TILE_FMHA_HEAD_GROUP_LOG", "1")
            assert library.fa_rocm_read_environment() == 0
            results.append(call())
        return results

    yield run
    for name in ("DISABLE_HEAD_GROUPING", "LLC_CACHE_MB", "HEAD_GROUP_LOG"):
        monkeypatch.delenv(f"CK_TILE_FMHA_{name}", raising=False)
    assert library.fa_rocm_read_environment() == 0


def launches_of(capfd: pytest.CaptureFixture[str], heads: int) -> int:
    """How many calls have said that they launch so many heads at a time."""
    return capfd.readouterr().err.count(f"{heads} of 12 heads a launch")


FEATURES = {
    "full": (Features(), False),
    "causal": (Features(causal=True), False),
    "window, softcap": (Features(window=(200, 50), softcap=5.0), False),
    "ALiBi": (Features(causal=True), True),
}


@pytest.mark.parametrize("name", FEATURES)
@pytest.mark.parametrize("heads_k", [6, 12])
def test_batch(
    both_ways: Grouped, kernel_device: str, capfd: pytest.CaptureFixture[str], heads_k: int, name: str
) -> None:
    features, alibi = FEATURES[name]
    q = normal(1, QUERIES, 12, 64).to(kernel_device)
    k, v = (normal(1, KEYS, heads_k, 64, seed=seed).to(kernel_device) for seed in (1, 2))
    slopes = SLOPES.to(kernel_device) if alibi else None
    one, groups = both_ways(lambda: load_ops().fwd(q, k, v, slopes, None, **op_arguments(features)))
    assert launches_of(capfd, 4 * 12 // heads_k) == 1
    for whole, parts in zip(one, groups, strict=True):
        assert torch.equal(whole, parts)
    # And both are right: the slopes of each head are its own.
    run_batch(kernel_device, q.cpu(), k.cpu(), v.cpu(), features, slopes=SLOPES if alibi else None)


@pytest.mark.parametrize("name", FEATURES)
def test_varlen(both_ways: Grouped, kernel_device: str, capfd: pytest.CaptureFixture[str], name: str) -> None:
    """Three sequences, one of them without queries; slopes of each batch entry.

    With key lengths of their own the sequences are read by turns, so the cache holds one head of all three.
    """
    features, alibi = FEATURES[name]
    lengths_q, lengths_k = [QUERIES, 0, 3], [KEYS, 9, 70]
    q = normal(sum(lengths_q), 12, 64).to(kernel_device)
    k, v = (normal(sum(lengths_k), 6, 64, seed=seed).to(kernel_device) for seed in (1, 2))
    slopes = torch.stack([SLOPES, SLOPES, SLOPES * 2]).to(kernel_device) if alibi else None
    tables = [starts(lengths).to(kernel_device) for lengths in (lengths_q, lengths_k)]
    used = torch.tensor([KEYS - 5, 9, 33], dtype=torch.int32, device=kernel_device)
    for seqused, heads in ((None, 8), (used, 2)):
        one, groups = both_ways(
            lambda seqused=seqused: load_ops().varlen_fwd(  # type: ignore[misc]
                q,
                k,
                v,
                *tables,
                seqused,
                None,
                slopes,
                max_seqlen_q=QUERIES,
                max_seqlen_k=KEYS,
                num_splits=1,
                **op_arguments(features),
            )
        )
        assert launches_of(capfd, heads) == 1
        for whole, parts in zip(one, groups, strict=True):
            assert torch.equal(whole, parts)


def test_dropout_is_launched_whole(both_ways: Grouped, kernel_device: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Its masks go by the number of a head in its launch: grouping changes nothing of them."""
    q = normal(1, QUERIES, 12, 64).to(kernel_device)
    k = normal(1, KEYS, 6, 64, seed=1).to(kernel_device)
    state = torch.tensor([3, 5], device=kernel_device)
    one, other = both_ways(
        lambda: load_ops().fwd(q, k, k, None, state, softmax_scale=SCALE, dropout_p=0.5, return_dropout_map=True)
    )
    assert launches_of(capfd, 8) == 0
    for first, second in zip(one, other, strict=True):
        assert torch.equal(first, second)


def test_each_device_has_a_cache_of_its_own(installed: Path) -> None:
    """Two emulated GPUs in one process: 64 and 32 MiB of last-level cache in their tables."""
    program = "from flash_attn_rocm import ops; print(ops.read_json('fa_rocm_describe'))"
    environment = {**os.environ, "FLASH_ATTN_ROCM_EMULATE": "gfx1201,gfx1200", "PYTHONPATH": str(ROOT / "src")}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    devices = json.loads(run.stdout)["devices"]
    assert [device["head_grouping"]["cache_bytes"] >> 20 for device in devices] == [64, 32]
    assert [device["head_grouping"]["kv_bytes_per_launch"] for device in devices] == [57042534, 32 << 20]
