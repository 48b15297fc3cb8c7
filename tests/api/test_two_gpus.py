"""Two different cards in one machine: each runs the kernels that were compiled for it, also at the same time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.api.fake_runtime import SRC

# Not in the order of their names, so that no list of kernels is right by chance; of one family, and of two whose waves
# have 32 and 64 lanes.
PAIRS = [("gfx1201", "gfx1200"), ("gfx942", "gfx1201")]

# CPU tensors run on the emulated runtime's current device, which is the calling thread's own.
PROGRAM = """
import ctypes, json, threading
import torch
from flash_attn_rocm import flash_attn_func, ops, paths
from flash_attn_rocm.reference import Mask, Scoring, compare
hip = ctypes.CDLL(str(paths.hip_library_path()))
torch.manual_seed(0)
q, k, v = (torch.randn(1, 70, heads, 64, dtype=torch.bfloat16) for heads in (4, 2, 2))
passed, counts = {}, {}

def attend(name, device):
    assert hip.hipSetDevice(device) == 0
    out, lse, _ = flash_attn_func(q, k, v, causal=True, return_attn_probs=True)
    passed[name] = compare(out, lse, q, k, v, Scoring(64**-0.5, Mask(right=0))).passed

def launched():
    return json.loads(ops.read_json("fa_rocm_launch_counts"))

for name, device in (("first", 0), ("second", 1), ("first again", 0)):
    attend(name, device)
    counts[name] = launched()
threads = [threading.Thread(target=attend, args=(f"thread {i}", i % 2)) for i in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
counts["threads"] = launched()
devices = json.loads(ops.read_json("fa_rocm_describe"))["devices"]
print(json.dumps({"passed": passed, "counts": counts, "devices": devices}))
"""


@pytest.fixture(scope="module", params=PAIRS, ids=",".join)
def gpus(request: pytest.FixtureRequest) -> tuple[str, str]:
    pair: tuple[str, str] = request.param
    return pair


def _run(program: str, gpus: tuple[str, str]) -> dict[str, Any]:
    variables = os.environ | {"PYTHONPATH": str(SRC), "FLASH_ATTN_ROCM_EMULATE": ",".join(gpus)}
    variables.pop("FLASH_ATTN_ROCM_BACKEND", None)
    done = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def answer(gpus: tuple[str, str]) -> dict[str, Any]:
    return _run(PROGRAM, gpus)


def _launches_by_gpu(counts: dict[str, int], gpus: tuple[str, str]) -> tuple[int, ...]:
    return tuple(sum(number for name, number in counts.items() if f"_{gpu}_" in name) for gpu in gpus)


def test_each_device_launches_only_kernels_of_its_own(answer: dict[str, Any], gpus: tuple[str, str]) -> None:
    counts = answer["counts"]
    assert [_launches_by_gpu(counts[name], gpus) for name in ("first", "second", "first again", "threads")] == [
        (1, 0),
        (1, 1),
        (2, 1),
        (4, 3),
    ]


def test_both_devices_are_right(answer: dict[str, Any]) -> None:
    assert len(answer["passed"]) == 7
    assert all(answer["passed"].values())


def test_both_devices_are_described_with_their_kernels(answer: dict[str, Any], gpus: tuple[str, str]) -> None:
    devices = answer["devices"]
    assert [device["gfx"] for device in devices] == list(gpus)
    assert all(f"/{device['gfx']}/kernels.json" in device["kernels"] for device in devices)


GRADIENTS = """
import ctypes, json
import torch
from flash_attn_rocm import flash_attn_func, ops, paths
from flash_attn_rocm.backends import ck_backward
from flash_attn_rocm.errors import KernelUnavailableError
hip = ctypes.CDLL(str(paths.hip_library_path()))
torch.manual_seed(0)
q, k, v = (torch.randn(1, 20, heads, 64, dtype=torch.bfloat16) for heads in (4, 2, 2))

def gradients(device):
    assert hip.hipSetDevice(device) == 0
    leaves = [tensor.clone().requires_grad_() for tensor in (q, k, v)]
    return torch.autograd.grad(flash_attn_func(*leaves).sum(), leaves)

apart = [(one - other).abs().max().item() for one, other in zip(gradients(0), gradients(1))]
try:
    options = {"softmax_scale": 0.125, "dropout_p": 0.0}
    ck_backward.gradients((q, q, k, v, q), torch.zeros(1, 4, 20), None, None, None, **options)
    refused = ""
except KernelUnavailableError as error:
    refused = str(error)
launched = [name for name in json.loads(ops.read_json("fa_rocm_launch_counts")) if "bwd" in name]
print(json.dumps({"apart": apart, "refused": refused, "launched": launched}))
"""


def test_gradients_come_from_kernels_of_the_current_device() -> None:
    """The default build has backward kernels for the first of these GPUs only: for the second, torch computes them."""
    answer = _run(GRADIENTS, ("gfx1201", "gfx1101"))
    assert answer["launched"]
    assert all("_gfx1201_" in name for name in answer["launched"])
    assert max(answer["apart"]) < 0.1
    assert "the installed kernels for gfx1101" in answer["refused"]
