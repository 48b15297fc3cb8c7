"""Every kind of unusable argument gives an error that names it, its value and what is allowed."""

from __future__ import annotations

import math
from typing import Any

import numpy
import pytest
import torch

from flash_attn_rocm import flash_attn_func, flash_attn_varlen_func
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


LAYOUTS = {
    "torch.sparse_coo": GOOD.to_sparse(),
    "torch.sparse_csr": GOOD[0, 0].to_sparse_csr(),
    "torch._mkldnn": GOOD.float().to_mkldnn() if torch.backends.mkldnn.is_available() else GOOD.to_sparse(),
    "nested": torch.nested.nested_tensor([GOOD[0], GOOD[1]]),
    "quantized": torch.quantize_per_tensor(GOOD.float(), 0.1, 0, torch.qint8),
}


@pytest.mark.parametrize("backend", ["ck", "sdpa"])
@pytest.mark.parametrize("argument", ["q", "k", "v", "alibi_slopes"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_only_dense_tensors(layout: str, argument: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASH_ATTN_ROCM_BACKEND", backend)
    tensors: dict[str, Any] = {"q": GOOD, "k": GOOD, "v": GOOD} | {argument: LAYOUTS[layout]}
    kind = r"torch\.\w+" if layout == "torch._mkldnn" else layout
    with pytest.raises(InputError, match=f"^{argument} has layout {kind}; expected torch.strided"):
        flash_attn_func(**tensors)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"alibi_slopes": [1.0] * 4}, "alibi_slopes is list; expected a torch.Tensor"),
        ({"dropout_p": 1.0}, "dropout_p is 1.0; allowed: 0 <= dropout_p < 1"),
        ({"dropout_p": -0.1}, "dropout_p is -0.1"),
        ({"softcap": -1.0}, "softcap is -1.0"),
        ({"dropout_p": math.nan}, "dropout_p is nan; allowed: 0 <= dropout_p < 1"),
        ({"dropout_p": "0.1"}, r"dropout_p is '0.1' \(str\); expected a number"),
        ({"dropout_p": False}, r"dropout_p is False \(bool\); expected a number"),
        ({"softcap": math.nan}, r"softcap is nan; allowed: 0 \(off\) or a finite positive number"),
        ({"softcap": math.inf}, "softcap is inf"),
        ({"softcap": 1e300}, "softcap is 1e.300"),
        ({"softcap": None}, r"softcap is None \(NoneType\); expected a number"),
        ({"softmax_scale": math.nan}, "softmax_scale is nan; allowed: None, 0 or a finite number"),
        ({"softmax_scale": math.inf}, "softmax_scale is inf"),
        ({"softmax_scale": -math.inf}, "softmax_scale is -inf"),
        ({"softmax_scale": 1e-40}, "softmax_scale is 1e-40"),
        ({"softmax_scale": -1e39}, "softmax_scale is -1e.39"),
        ({"softmax_scale": True}, r"softmax_scale is True \(bool\); expected a number"),
        ({"softmax_scale": torch.ones(1)}, r"softmax_scale is tensor.* \(Tensor\); expected a number"),
        ({"window_size": (1, 2, 3)}, "window_size is"),
        ({"window_size": 5}, "window_size is 5; expected two integers"),
        ({"window_size": None}, "window_size is None; expected two integers"),
        ({"window_size": (1.0, 2)}, r"window_size is \(1.0, 2\); expected two integers"),
        ({"window_size": (1, True)}, r"window_size is \(1, True\); expected two integers"),
        ({"window_size": (math.nan, 1)}, r"window_size is \(nan, 1\); expected two integers"),
        ({"window_size": (2**31, 0)}, r"window_size is \(2147483648, 0\); expected two integers .* to 2147483647"),
        ({"window_size": (0, -(2**31) - 1)}, "window_size is"),
        ({"alibi_slopes": torch.ones(4, dtype=torch.float16)}, "alibi_slopes is torch.float16"),
        ({"alibi_slopes": torch.ones(3)}, r"alibi_slopes has shape \(3,\); allowed: \(4,\) or \(2, 4\)"),
        ({"alibi_slopes": torch.ones(4, device="meta")}, "alibi_slopes is on meta, q on cpu"),
    ],
)
@pytest.mark.parametrize("backend", ["ck", "sdpa"])
def test_unusable_values(
    arguments: dict[str, Any], message: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same contract on every backend: arguments are checked before one is chosen."""
    monkeypatch.setenv("FLASH_ATTN_ROCM_BACKEND", backend)
    with pytest.raises(InputError, match=message):
        flash_attn_func(GOOD, GOOD, GOOD, **arguments)


def test_numbers_of_other_libraries_are_numbers() -> None:
    q = torch.randn(1, 9, 2, 8, dtype=torch.float16)
    expected = flash_attn_func(q, q, q, softmax_scale=0.5, window_size=(3, 2), softcap=2.0)
    numbers = {"softmax_scale": numpy.float32(0.5), "softcap": numpy.float64(2.0)}
    window = (numpy.int64(3), numpy.int32(2))
    assert torch.equal(flash_attn_func(q, q, q, window_size=window, **numbers), expected)


def test_input_errors_are_value_errors() -> None:
    with pytest.raises(ValueError, match="dimensions"):
        flash_attn_func(GOOD[0], GOOD[0], GOOD[0])


def test_an_unknown_backend_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASH_ATTN_ROCM_BACKEND", "triton")
    with pytest.raises(BackendChoiceError, match="FLASH_ATTN_ROCM_BACKEND is 'triton'; allowed: ck; sdpa; ck,sdpa"):
        flash_attn_func(GOOD, GOOD, GOOD)


def test_a_switch_that_is_neither_on_nor_off_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASH_ATTN_ROCM_CHECK_VALUES", "maybe")
    starts = torch.tensor([0, 1], dtype=torch.int32)
    with pytest.raises(BackendChoiceError, match="FLASH_ATTN_ROCM_CHECK_VALUES is 'maybe'; expected 0 or 1"):
        flash_attn_varlen_func(GOOD[0, :1], GOOD[0, :1], GOOD[0, :1], starts, starts, 1, 1)


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
values = [
    {"softmax_scale": 0.0},
    {"softmax_scale": -1.0},
    {"softmax_scale": float("nan")},
    {"softmax_scale": float("inf")},
    {"softmax_scale": 1e-40},
    {"softmax_scale": 1e39},
    {"softcap": float("nan")},
    {"softcap": float("inf")},
    {"dropout_p": float("nan")},
    {"window_left": 2**31},
    {"window_right": -(2**31) - 1},
]
for case, value in [(case, {}) for case in cases] + [((good,) * 3, value) for value in values]:
    try:
        torch.ops.flash_attn_rocm.fwd(*case, **{"softmax_scale": 1.0, **value})
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
        *[
            f"softmax_scale is {value}; allowed: finite and above 0"
            for value in ("0", "-1", "nan", "inf", "1e-40", "1e+39")
        ],
        "softcap is nan; allowed: 0 (off) or a finite positive number",
        "softcap is inf; allowed: 0 (off) or a finite positive number",
        "dropout_p is nan; allowed: 0 <= dropout_p < 1",
        "window_left is 2147483648; allowed: negative (unbounded) to 2147483647",
        "window_right is -2147483649; allowed: negative (unbounded) to 2147483647",
    ]
    assert len(lines) == len(expected)
    for line, text in zip(lines, expected, strict=True):
        assert text in line
    assert not run.launches()


STORAGE = """
import torch
from flash_attn_rocm import flash_attn_func, ops
ops.load()
def call(name, function, **tensors):
    good = torch.zeros(2, 5, 4, 64, dtype=torch.bfloat16)
    tensors = {"q": good, "k": good, "v": good} | tensors
    try:
        function(*(tensors[key] for key in "qkv"))
        print(name, "no error")
    except RuntimeError as error:
        print(name, str(error).splitlines()[0])
def resized(tensor, size):
    tensor.untyped_storage().resize_(size)
    return tensor
op = lambda q, k, v: torch.ops.flash_attn_rocm.fwd(q, k, v, softmax_scale=1.0)
for name in "qkv":
    for function in (op, flash_attn_func):
        for size in (0, 5119):
            call(name, function, **{name: resized(torch.zeros(2, 5, 4, 64, dtype=torch.bfloat16), size)})
call("q", op, q=resized(torch.zeros(5121, dtype=torch.bfloat16)[1:2561].view(2, 5, 4, 64), 5121))
call("exact", op, q=resized(torch.zeros(5121, dtype=torch.bfloat16)[1:2561].view(2, 5, 4, 64), 5122))
call("expanded", op, q=torch.zeros(1, 1, 1, 64, dtype=torch.bfloat16).expand(2, 5, 4, 64))
call("empty", op, q=resized(torch.zeros(2, 0, 4, 64, dtype=torch.bfloat16), 0))
"""


def test_a_storage_that_was_shrunk_is_refused(run_fake: RunFake) -> None:
    """Reading it would be a segmentation fault; sharded training frees parameters this way."""
    run = run_fake(STORAGE)
    assert run.returncode == 0, run.stderr
    *refused, exact, expanded, empty = run.stdout.splitlines()
    assert [exact, expanded, empty] == ["exact no error", "expanded no error", "empty no error"]
    assert len(refused) == 13
    for line in refused:
        name, _, text = line.partition(" ")
        assert f"{name} has shape (2, 5, 4, 64) and needs 512" in text
        assert "its storage is too small: it has" in text


def test_more_heads_than_a_launch_can_have_are_called_that(run_fake: RunFake) -> None:
    """With one row per head, no head spans much memory, whatever the row stride; 4 GiB are allocated, not touched."""
    program = """
import torch
from flash_attn_rocm import flash_attn_func
q = torch.zeros(1, 1, 1, 64, dtype=torch.bfloat16).expand(1, 1, 2**25, 64)
flash_attn_func(q, q[:, :, :1], q[:, :, :1])
"""
    run = run_fake(program)
    assert "nheads is 33554432, more than one launch can have" in run.stderr
    assert not run.launches()


DEVICES = """
import itertools, torch
from flash_attn_rocm import ops
ops.load()
cpu = torch.zeros(2, 5, 4, 64, dtype=torch.bfloat16)
for devices in itertools.product(("cpu", "meta"), repeat=3):
    try:
        out, lse, _ = torch.ops.flash_attn_rocm.fwd(*(cpu.to(device) for device in devices), softmax_scale=1.0)
        print(*devices, out.device, lse.device)
    except RuntimeError as error:
        print(*devices, str(error).splitlines()[0])
"""


def test_the_op_itself_refuses_tensors_on_different_devices(run_fake: RunFake) -> None:
    run = run_fake(DEVICES)
    assert run.returncode == 0, run.stderr
    for line in run.stdout.splitlines():
        *devices, text = line.split(maxsplit=3)
        if len(set(devices)) == 1:
            assert text == f"{devices[0]} {devices[0]}"
        else:
            assert "must be on one device" in text, line
    assert len(run.stdout.splitlines()) == 8
    assert len(run.launches()) == 1


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


OTHER_OPS = """
import torch
from flash_attn_rocm import ops
ops.load()
like = {"dtype": torch.bfloat16}
ours = torch.ops.flash_attn_rocm
q, cache = torch.zeros(2, 1, 4, 64, **like), torch.zeros(2, 32, 4, 64, **like)
new, lengths = torch.zeros(2, 3, 4, 64, **like), torch.tensor([5, 7], dtype=torch.int32)
many = torch.zeros(1, 1, 1, 1, **like).expand(2**16, 2**15, 1, 1)
one_slot = torch.zeros(1, 16, 1, 1, **like).expand(2**16, 16, 1, 1)
deep = torch.zeros(1, 1, 1, 1, 1, 1, 1, 1, 64, **like)
lse = torch.zeros(2, 4, 1)
starts = torch.tensor([0, 1, 2], dtype=torch.int32)
scale = {"softmax_scale": 1.0}

def append(k=cache, v=cache, rotary=None):
    return ours.kvcache_fwd(q, k, v, new, new, rotary, rotary, cache_seqlens=lengths, **scale)

def gradients(**given):
    grads = {"dq": torch.empty_like(q), "dk": torch.empty_like(q), "dv": torch.empty_like(q)} | given
    return ours.bwd_out(q, q, q, q, q, lse, *grads.values(), **scale)

own, packed = torch.zeros(2, 1, 4, 64, **like), torch.zeros(2, 1, 7, 64, **like)
calls = [
    lambda: append(rotary=torch.tensor(1.0, **like)),
    lambda: append(rotary=torch.zeros(32, **like)),
    lambda: append(rotary=torch.zeros(32, 8, 1, **like)),
    lambda: append(k=cache[:1].expand_as(cache)),
    lambda: append(v=cache[:, :, :1].expand_as(cache)),
    lambda: ours.kvcache_fwd(many, one_slot, one_slot, **scale),
    lambda: ours.bwd(deep, deep, deep, deep, deep, lse, **scale),
    lambda: ours.varlen_bwd(deep, deep, deep, deep, deep, lse, starts, starts, max_seqlen_q=1, max_seqlen_k=1, **scale),
    lambda: ours.bwd(q, q, q, deep, q, lse, **scale),
    lambda: gradients(dk=own, dv=own),
    lambda: gradients(dq=packed[:, :, :4], dv=packed[:, :, 3:]),
    lambda: gradients(dq=packed[:1, :, 3:].expand(2, 1, 4, 64)),
    lambda: ours.fwd(*[torch.zeros(1, 1, 1, 64, **like).expand(2**14, 2**14, 2**14, 64)] * 3, **scale),
]
for call in calls:
    try:
        call()
        print("no error")
    except RuntimeError as error:
        print(str(error).replace("\\n", " "))
"""


def test_the_other_ops_check_their_tensors(run_fake: RunFake) -> None:
    """What would crash, wrap around in 32 bits, be written by several waves in any order, or not say what failed."""
    run = run_fake(OTHER_OPS)
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    expected = [
        "rotary_cos and rotary_sin must have shape (seqlen, rotary_dim / 2), rotary_dim a multiple of 16 up to 64",
        "but one has shape (32)",
        "but one has shape (32, 8, 1)",
        "k_cache has shape (2, 32, 4, 64) and stride 0 in dimension 0: several of its elements are one place in memory",
        "v_cache has shape (2, 32, 4, 64) and stride 0 in dimension 2: several of its elements are one place in memory",
        "q has shape (65536, 32768, 1, 1), more rows than 32 bits can number. Split the batch",
        "q and k have shapes (1, 1, 1, 1, 1, 1, 1, 1, 64) and (1, 1, 1, 1, 1, 1, 1, 1, 64); expected 4 dimensions",
        "q and k have shapes (1, 1, 1, 1, 1, 1, 1, 1, 64) and (1, 1, 1, 1, 1, 1, 1, 1, 64); expected 3 dimensions",
        "v has shape (1, 1, 1, 1, 1, 1, 1, 1, 64) and dtype BFloat16; expected those of k: (2, 1, 4, 64)",
        "dk and dv share memory: both are written. Pass tensors that do not overlap",
        "dq and dv share memory: both are written. Pass tensors that do not overlap",
        "dq has shape (2, 1, 4, 64) and stride 0 in dimension 0: several of its elements are one place in memory",
        # In the words by which programs that try smaller batches know it.
        "DefaultCPUAllocator: can't allocate memory",
    ]
    assert len(lines) == len(expected), lines
    for line, text in zip(lines, expected, strict=True):
        assert text in line
    assert not run.launches()
