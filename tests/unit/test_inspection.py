"""What `flash-attn-rocm info` finds on machines that are described in files, and the problems it sees there."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest

from flash_attn_rocm.archs import load_archs
from flash_attn_rocm.gpu_identity import Override
from flash_attn_rocm.inspection.coverage import CALLS, cover
from flash_attn_rocm.inspection.gpus import DriverGpus, find_driver_gpus
from flash_attn_rocm.inspection.hip_runtimes import Runtime, installed_runtimes, loaded_libraries
from flash_attn_rocm.inspection.problems import Facts, find_problems, reported_variables
from tests.unit.kfd_nodes import make_nodes

PACKAGED = next(iter(load_archs()))
UNPACKAGED = "gfx906"
HEALTHY = Facts(
    torch_version="2.13.0+rocm7.2",
    torch_hip="7.2",
    torch_gpus=(PACKAGED,),
    driver=DriverGpus((PACKAGED,), True),
    variables={"HOME": "/root", "HIP_VISIBLE_DEVICES": "0"},
    emulated=(),
    kernels=(PACKAGED,),
    loaded={"libamdhip64": ("/env/lib/libamdhip64.so.7",)},
    installed=(Runtime("/env/lib/libamdhip64.so.7", "this environment"),),
    flash_attn="2.8.3+flash.attn.rocm.0.1.0",
)


def changed(**changes: Any) -> Facts:
    """A healthy installation but for this."""
    return dataclasses.replace(HEALTHY, **changes)


def test_a_healthy_installation_has_no_problems() -> None:
    assert find_problems(HEALTHY) == []
    bare = Facts("2.13.0+cpu", None, (), DriverGpus((), None), {}, (), ())
    assert find_problems(bare) == []


@pytest.mark.parametrize(
    ("facts", "name", "severity", "problem", "fix"),
    [
        (changed(torch_version="2.9.1"), "torch-too-old", "error", "torch 2.9.1", "torch 2.11 or later"),
        (
            changed(torch_hip=None, torch_gpus=()), "torch-without-rocm", "error",
            f"has {PACKAGED}, but torch 2.13.0+rocm7.2 is not built for ROCm", "ROCm build of torch",
        ),
        (
            changed(torch_gpus=(), driver=DriverGpus((), False)), "gpu-not-permitted", "error", "/dev/kfd", "usermod",
        ),
        (
            changed(torch_gpus=(), variables={"HIP_VISIBLE_DEVICES": ""}), "gpus-hidden", "error",
            "1 GPUs (" + PACKAGED + "), torch sees 0; set: HIP_VISIBLE_DEVICES=.", "Unset HIP_VISIBLE_DEVICES",
        ),
        (
            changed(driver=DriverGpus((PACKAGED, "gfx1036"), True), variables={}), "gpus-hidden", "warning",
            "2 GPUs", "rocminfo",
        ),
        (
            changed(override=Override("it makes every GPU pose", "unset it")), "gpu-poses-as-another", "error",
            "it makes every GPU pose.", "HSA_OVERRIDE_GFX_VERSION: unset it",
        ),
        (
            changed(variables={"HSA_OVERRIDE_GFX_VERSION_1": "11.0.0"}), "gpu-poses-as-another", "warning",
            "HSA_OVERRIDE_GFX_VERSION_1=11.0.0 makes one GPU pose", "Unset HSA_OVERRIDE_GFX_VERSION_1",
        ),
        (
            changed(kernels=("gfx000",)), "kernels-of-another-gpu", "warning",
            f"installed for gfx000, but the GPU is {PACKAGED}",
            f"kernels-{PACKAGED} (where no channel has it, `GPU_ARCHS={PACKAGED} ./pixiw run build",
        ),
        (
            changed(torch_gpus=(UNPACKAGED,)), "kernels-of-another-gpu", "warning",
            f"the GPU is {UNPACKAGED}", "no kernels for it in this version: set FLASH_ATTN_ROCM_BACKEND=sdpa",
        ),
        (
            changed(loaded={"libhsa-runtime64": ("/a/libhsa-runtime64.so.1", "/b/libhsa-runtime64.so.1")}),
            "two-runtimes-loaded", "error", "2 copies of libhsa-runtime64: /a/libhsa-", "LD_LIBRARY_PATH",
        ),
        (
            changed(installed=(*HEALTHY.installed, Runtime("/opt/rocm/lib/libamdhip64.so.6", "/opt/rocm"))),
            "several-runtimes-installed", "note", "/opt/rocm/lib/libamdhip64.so.6 (/opt/rocm)", "Keep one",
        ),
        (
            changed(variables={"FLASH_ATTENTION_TRITON_AMD_ENABLE": "TRUE"}), "override-variable", "note",
            "this package does not read it", "FLASH_ATTN_ROCM_BACKEND",
        ),
        (
            changed(variables={"FLASH_ATTN_ROCM_BACKEND": "sdpa"}), "backend-forced", "note",
            "FLASH_ATTN_ROCM_BACKEND=sdpa overrides", "Unset FLASH_ATTN_ROCM_BACKEND",
        ),
        (
            changed(variables={"FLASH_ATTN_ROCM_BACKENDS": "ck"}), "unknown-variable", "warning",
            "FLASH_ATTN_ROCM_BACKENDS=ck is read by nothing", "Set FLASH_ATTN_ROCM_BACKEND if that was meant",
        ),
        (
            changed(variables={"FLASH_ATTN_ROCM_EMULATED": "gfx1201"}), "unknown-variable", "warning",
            "no variable of this name", "Set FLASH_ATTN_ROCM_EMULATE if that was meant",
        ),
        (
            changed(variables={"FLASH_ATTN_ROCM_POLICY": "/x.toml"}, policy_lacks=True), "policy-file", "warning",
            "FLASH_ATTN_ROCM_POLICY=/x.toml names no file", "Correct the path, or unset FLASH_ATTN_ROCM_POLICY",
        ),
        (
            changed(emulated=("gfx1201",)), "emulator-in-use", "error", "FLASH_ATTN_ROCM_EMULATE=gfx1201",
            "Unset FLASH_ATTN_ROCM_EMULATE",
        ),
        (
            changed(flash_attn="2.8.3"), "flash-attn-from-elsewhere", "note", "flash_attn 2.8.3, not this",
            "conda install flash-attn-rocm-compat",
        ),
    ],
)  # fmt: skip
def test_each_problem_has_its_fix(facts: Facts, name: str, severity: str, problem: str, fix: str) -> None:
    (found,) = find_problems(facts)
    assert (found.id, found.severity) == (name, severity)
    assert problem in found.problem
    assert fix in found.fix


def test_errors_stand_first() -> None:
    facts = changed(variables={"FLASH_ATTN_ROCM_BACKEND": "ck"}, torch_version="2.1")
    assert [problem.severity for problem in find_problems(facts)] == ["error", "note"]


def test_the_driver_names_the_gpus(tmp_path: Path) -> None:
    make_nodes(tmp_path, 0, 120001, 90402)
    device = tmp_path / "kfd"
    device.touch()
    found = find_driver_gpus(tmp_path / "nodes", device)
    assert found == DriverGpus(("gfx1201", "gfx942"), True)
    assert find_driver_gpus(tmp_path / "absent", tmp_path / "absent") == DriverGpus((), None)


def test_loaded_libraries_are_read_from_the_maps(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text(
        "7f00-7f01 r-xp 00000000 08:01 11 /opt/a b/libamdhip64.so.7.1\n"
        "7f02-7f03 r--p 00000000 08:01 11 /opt/a b/libamdhip64.so.7.1\n"
        "7f04-7f05 r-xp 00000000 08:01 12 /env/libamdhip64.so.6 (deleted)\n"
        "7f06-7f07 r-xp 00000000 08:01 13 /env/libhsa-runtime64.so.1\n"
        "7f08-7f09 rw-p 00000000 00:00 0 [heap]\n7f10-7f11 rw-p 00000000 00:00 0 \n",
        encoding="utf-8",
    )
    assert loaded_libraries(maps) == {
        "libamdhip64": ("/env/libamdhip64.so.6", "/opt/a b/libamdhip64.so.7.1"),
        "libhsa-runtime64": ("/env/libhsa-runtime64.so.1",),
    }
    assert loaded_libraries(tmp_path / "absent") is None


@pytest.mark.skipif(sys.platform == "win32", reason="the directories of other systems")
def test_installed_runtimes_are_counted_once(tmp_path: Path) -> None:
    """torch's own, a wheel's, and one in LD_LIBRARY_PATH that ROCM_PATH names again through a link."""
    for directory in ("site/torch/lib", "site/_rocm_sdk_core/lib", "rocm/lib", "emulator"):
        (tmp_path / directory).mkdir(parents=True)
        (tmp_path / directory / "libamdhip64.so.7").touch()
    (tmp_path / "rocm/lib/libamdhip64.so").symlink_to("libamdhip64.so.7")
    (tmp_path / "link").symlink_to("rocm")
    variables = {"ROCM_PATH": str(tmp_path / "link"), "LD_LIBRARY_PATH": f"{tmp_path}/emulator:{tmp_path}/rocm/lib:"}
    found = installed_runtimes(variables, tmp_path / "site/torch", [tmp_path / "emulator"])
    found = [runtime for runtime in found if runtime.path.startswith(str(tmp_path))]
    assert [runtime.where for runtime in found] == ["beside torch", "wheel _rocm_sdk_core", "ROCM_PATH"]


def test_reported_variables_are_those_that_matter() -> None:
    variables = {"HOME": "/", "FLASH_ATTN_ROCM_BACKEND": "ck", "HSA_OVERRIDE_GFX_VERSION_0": "9", "ROCM_PATH": "/r"}
    assert list(reported_variables(variables)) == [
        "FLASH_ATTN_ROCM_BACKEND", "HSA_OVERRIDE_GFX_VERSION_0", "ROCM_PATH",
    ]  # fmt: skip


def row(**changes: Any) -> dict[str, Any]:
    """One kernel of kernels.json."""
    plain = {"op": "fmha_fwd", "mode": "batch", "dtype": "bf16", "hdim_q": 64, "bias": "none", "softcap": False}
    return plain | {"dropout": False, "padding": "full", "page": 0, "mask": True} | changes


BY_NAME = {call.name: call for call in CALLS}


def test_coverage_names_the_head_dims_of_each_dtype() -> None:
    kernels = [
        row(), row(hdim_q=128, dtype="fp16"), row(hdim_q=256, padding="seqlen"), row(softcap=True, hdim_q=32),
        row(op="fmha_fwd_splitkv", mode="group", page=16), row(op="fmha_bwd", mode="group", padding="seqlen"),
    ]  # fmt: skip
    assert cover(kernels, BY_NAME["forward"]) == {"bf16": "1-64, 256", "fp16": "1-128"}
    assert cover(kernels, BY_NAME["forward with softcap"]) == {"bf16": "1-32"}
    assert cover(kernels, BY_NAME["paged KV cache"]) == {"bf16": "1-64"}
    assert cover(kernels, BY_NAME["varlen backward"]) == {"bf16": "64"}
    assert cover(kernels, BY_NAME["KV cache"]) == cover(kernels, BY_NAME["backward"]) == {}


def test_kernels_without_mask_cover_no_causal_call() -> None:
    kernels = [row(), row(hdim_q=128, mask=False), row(dtype="fp16", mask=False)]
    assert cover(kernels, BY_NAME["forward"]) == {"bf16": "1-64"}
    assert cover(kernels, BY_NAME["forward"], masked=False) == {"bf16": "1-128", "fp16": "1-64"}


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("forward", row(padding="none")),  # whole tiles only
        ("KV cache", row(op="fmha_fwd_splitkv", mode="group", bias="alibi")),
        ("KV cache", row(op="fmha_fwd_splitkv", mode="group", softcap=True)),
        ("paged KV cache", row(op="fmha_fwd_splitkv", mode="group", page=64)),  # pages of 16 rows raise
    ],
)
def test_kernels_that_cover_a_part_of_a_call_do_not_count(name: str, kernel: dict[str, Any]) -> None:
    assert cover([kernel], BY_NAME[name], masked=False) == {}
