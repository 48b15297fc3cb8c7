"""Our own kernels beside CK's: without one of its arguments none is accepted, and each is used up to its head dim."""

from __future__ import annotations

import json
import struct

import pytest

from tests.api.conftest import RunFake
from tests.api.fake_runtime import kernel, manifest, standard_kernels, write_kernels
from tests.api.own_kernels import SOURCES, arguments, own_kernel
from tests.api.test_kernel_packages import CALL_EACH, call

MISSING = [(op, name) for op in SOURCES for name in arguments(op)]

# What CK's split-KV kernels have beside the arguments of its forward kernels.
SPLIT_ARGS = (
    *("q_ptr", "k_ptr", "v_ptr", "o_acc_ptr", "lse_acc_ptr", "seqstart_q_ptr", "seqstart_k_ptr", "seqlen_k_ptr"),
    *("seqlen_q", "seqlen_k", "hdim_q", "hdim_v", "num_head_q", "nhead_ratio_qk", "scale_s", "num_splits", "batch"),
    *("stride_q", "stride_k", "stride_v", "stride_o_acc", "nhead_stride_q", "nhead_stride_k", "nhead_stride_v"),
    *("nhead_stride_o_acc", "nhead_stride_lse_acc", "split_stride_o_acc", "split_stride_lse_acc"),
)


def test_the_sources_declare_what_is_read_here() -> None:
    """A parser that found nothing would test nothing."""
    assert {"lse_acc_ptr", "num_splits", "batch_stride_o"} < set(arguments("split_combine"))
    assert {"stride_v", "nhead_stride_v", "batch_stride_v", "is_rotary_per_row"} < set(arguments("kv_prepare"))
    assert arguments("bwd_dot")["p_undrop"] == [8 * 14, 4]
    assert arguments("bwd_sum_keys") == arguments("bwd_sum_heads")


@pytest.fixture(scope="module")
def missing_errors(run_fake: RunFake, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], str]:
    """The error of a call for each argument that its kernel lacks, all in one process."""
    root = tmp_path_factory.mktemp("missing")
    for index, (op, name) in enumerate(MISSING):
        args = {key: slot for key, slot in arguments(op).items() if key != name}
        write_kernels(root / str(index), manifest([*standard_kernels(), own_kernel(op, "x", args=args)]))
    run = run_fake(CALL_EACH.format(count=len(MISSING)), FLASH_ATTN_ROCM_KERNELS=str(root))
    assert run.returncode == 0, run.stderr
    return dict(zip(MISSING, json.loads(run.stdout), strict=True))


@pytest.mark.parametrize(("op", "name"), MISSING)
def test_a_kernel_without_one_of_its_arguments_is_refused(
    missing_errors: dict[tuple[str, str], str], op: str, name: str
) -> None:
    """What the host fills in for it would be lost, and the kernel would read other bytes for it."""
    error = missing_errors[op, name]
    assert f"kernel x: argument '{name}' is missing, which such a kernel needs" in error
    assert "conda install --force-reinstall flash-attn-rocm-kernels-gfx1201" in error


def test_complete_kernels_are_accepted(run_fake: RunFake) -> None:
    run = run_fake(call(), document=manifest([*standard_kernels(), *(own_kernel(op, op) for op in SOURCES)]))
    assert run.returncode == 0, run.stderr
    assert len(run.launches()) == 1


DECODE = """
import torch
from flash_attn_rocm import ops
ops.load()
for hdim in (64, 65, 128, 129):
    q = torch.zeros(1, 1, 1, hdim, dtype=torch.bfloat16)
    cache = torch.zeros(1, 16, 1, hdim, dtype=torch.bfloat16)
    try:
        torch.ops.flash_attn_rocm.kvcache_fwd(q, cache, cache, softmax_scale=1.0)
    except RuntimeError as error:
        print(hdim, str(error).splitlines()[0])
"""


def test_the_smallest_kernel_that_holds_the_head_dim_runs(run_fake: RunFake) -> None:
    """Whatever their order; a kernel of a smaller head dim would leave the rest of each row out."""
    split_args = {name: [8 * i, 8 if "_ptr" in name else 4] for i, name in enumerate(SPLIT_ARGS)}
    split = kernel(
        "split", op="fmha_fwd_splitkv", mode="group", padding="full", hdim_q=256, hdim_v=256,
        args=split_args, kargs_bytes=8 * len(split_args),
    )  # fmt: skip
    own = [
        own_kernel(op, f"{op}_{hdim}", hdim_q=hdim, hdim_v=hdim)
        for op in ("split_combine", "kv_prepare")
        for hdim in ((128, 64) if op == "kv_prepare" else (64, 128))
    ]
    run = run_fake(DECODE, document=manifest([split, *own]))
    assert run.returncode == 0, run.stderr
    launched = [launch["kernel"] for launch in run.launches()]
    assert launched == [
        name for hdim in (64, 128, 128) for name in (f"kv_prepare_{hdim}", "split", f"split_combine_{hdim}")
    ]
    assert "have no split_combine for head dim 129" in run.stdout
    assert len(run.stdout.splitlines()) == 1
    offset, _ = arguments("split_combine")["hdim_v"]
    hdims = [struct.unpack_from("<i", bytes.fromhex(launch["arguments"]), offset) for launch in run.launches()[2::3]]
    assert hdims == [(64,), (65,), (128,)]
