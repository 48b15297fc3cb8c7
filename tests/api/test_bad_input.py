"""Every kind of unusable argument gives an error that names it, its value and what is allowed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from flash_attn_rocm import flash_attn_func
from flash_attn_rocm.errors import BackendChoiceError, InputError
from tests.api.conftest import RunFake


def tensor(*shape: int, dtype: torch.dtype = torch.float16, device: str = "cpu") -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype, device=device)


GOOD = tensor(2, 5, 4, 64)


@pytest.mark.parametrize(
    ("q", "k", "v", "message"),
    [
        (GOOD.float(), GOOD.float(), GOOD.float(), "q torch.float32.*allowed: torch.float16 and torch.bfloat16.*Cast"),
        (GOOD.double(), GOOD, GOOD, "q torch.float64, k torch.float16"),
        (GOOD, GOOD.bfloat16(), GOOD, "must have one dtype.*k torch.bfloat16"),
        (GOOD[0], GOOD, GOOD, r"q has 3 dimensions, shape \(5, 4, 64\); expected 4"),
        (GOOD, GOOD, GOOD[None], "v has 5 dimensions"),
        (GOOD, [1], GOOD, "k is list; expected a torch.Tensor"),
        (GOOD, GOOD, tensor(2, 6, 4, 64), r"k and v must have the same shape.*v \(2, 6, 4, 64\)"),
        (tensor(3, 5, 4, 64), GOOD, GOOD, "batch sizes of q and k differ"),
        (tensor(2, 5, 4, 32), GOOD, GOOD, "head dims of q and k differ"),
        (tensor(2, 5, 6, 64), GOOD, GOOD, r"nheads of q \(6\) must be a multiple of nheads of k and v \(4\)"),
        (tensor(2, 5, 2, 64), GOOD, GOOD, r"nheads of q \(2\) must be a multiple"),
        (*[tensor(1, 5, 2, 264)] * 3, "head dim is 264; allowed: 1 to 256"),
        (*[tensor(1, 5, 2, 0)] * 3, "head dim is 0; allowed: 1 to 256"),
        (GOOD, tensor(2, 5, 4, 64, device="meta"), GOOD, "must be on one device, but: q on cpu, k on meta, v on cpu"),
    ],
)
def test_unusable_tensors(q: Any, k: Any, v: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        flash_attn_func(q, k, v)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dropout_p": 1.0}, "dropout_p is 1.0; allowed: 0 <= dropout_p < 1"),
        ({"dropout_p": -0.1}, "dropout_p is -0.1"),
        ({"softcap": -1.0}, "softcap is -1.0"),
        ({"window_size": (1, 2, 3)}, "window_size is"),
        ({"alibi_slopes": torch.ones(4, dtype=torch.float16)}, "alibi_slopes is torch.float16"),
        ({"alibi_slopes": torch.ones(3)}, r"alibi_slopes has shape \(3,\); allowed: \(4,\) or \(2, 4\)"),
        ({"alibi_slopes": torch.ones(4, device="meta")}, "alibi_slopes is on meta, q on cpu"),
    ],
)
def test_unusable_values(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        flash_attn_func(GOOD, GOOD, GOOD, **arguments)


def test_input_errors_are_value_errors() -> None:
    with pytest.raises(ValueError, match="dimensions"):
        flash_attn_func(GOOD[0], GOOD[0], GOOD[0])


def test_an_unknown_backend_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASH_ATTN_ROCM_BACKEND", "triton")
    with pytest.raises(BackendChoiceError, match="FLASH_ATTN_ROCM_BACKEND is 'triton'; allowed: ck, sdpa"):
        flash_attn_func(GOOD, GOOD, GOOD)


OP = """
import torch
from flash_attn_rocm import ops
ops.load()
good = torch.zeros(2, 5, 4, 64, dtype=torch.bfloat16)
cases = [
    (good.float(), good, good),
    (good, good.half(), good),
    (good[0], good, good),
    (good, good, torch.zeros(2, 6, 4, 64, dtype=torch.bfloat16)),
    (torch.zeros(2, 5, 6, 64, dtype=torch.bfloat16), good, good),
    (torch.zeros(2, 5, 4, 0, dtype=torch.bfloat16),) * 3,
]
for case in cases:
    try:
        torch.ops.flash_attn_rocm.fwd(*case, softmax_scale=1.0)
        print("no error")
    except RuntimeError as error:
        print(str(error).replace("\\n", " "))
"""


def test_the_op_itself_checks_its_tensors(run_fake: RunFake) -> None:
    """Callers of torch.ops get errors too, not wild memory accesses."""
    run = run_fake(OP)
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    expected = [
        "q has dtype Float; allowed: Half (float16) and BFloat16",
        "q, k and v must have one dtype, but have BFloat16, Half and BFloat16",
        "must have 4 dimensions (batch, seqlen, nheads, headdim), but one has shape (5, 4, 64)",
        "shapes do not agree: q (2, 5, 4, 64), k (2, 5, 4, 64), v (2, 6, 4, 64)",
        "nheads of q (6) must be a multiple of nheads of k and v (4)",
        "head dim is 0; it must be positive",
    ]
    assert len(lines) == len(expected)
    for line, text in zip(lines, expected, strict=True):
        assert text in line
    assert not run.launches()


def test_cpu_tensors_without_an_emulated_gpu_are_refused_by_the_op(run_fake: RunFake) -> None:
    """The fake runtime counts as emulated, so an ordinary library stands in for 'no HIP runtime at all'."""
    program = """
import os, torch
del os.environ["FLASH_ATTN_ROCM_HIP_LIBRARY"], os.environ["FLASH_ATTN_ROCM_EMULATE"]
from flash_attn_rocm import ops
ops.load()
q = torch.zeros(1, 5, 4, 64, dtype=torch.bfloat16)
torch.ops.flash_attn_rocm.fwd(q, q, q, softmax_scale=1.0)
"""
    run = run_fake(program)
    assert run.returncode != 0
    assert "FLASH_ATTN_ROCM_EMULATE" in run.stderr
