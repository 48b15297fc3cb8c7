"""Finding the HIP runtime, and what the user is told when there is none that works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.api.conftest import RunFake
from tests.api.fake_runtime import SRC

CALL = """
import torch
from flash_attn_rocm import flash_attn_func
q = torch.randn(1, 9, 2, 64, dtype=torch.bfloat16)
flash_attn_func(q, q, q)
"""
DESCRIBE = "import json; from flash_attn_rocm import ops; print(ops.read_json('fa_rocm_describe'))"


def test_a_runtime_before_hip_6_is_rejected_with_its_version(run_fake: RunFake) -> None:
    run = run_fake(CALL, FAKE_HIP_VERSION="50731921")
    assert run.returncode != 0
    assert "its HIP version is 5.7.31921, too old; needed: 6.0 or later" in run.stderr
    assert not run.launches()


@pytest.mark.parametrize(("version", "text"), [("60000000", "6.0.0"), ("70226015", "7.2.26015")])
def test_hip_6_and_7_are_accepted(run_fake: RunFake, version: str, text: str) -> None:
    run = run_fake(DESCRIBE, FAKE_HIP_VERSION=version)
    assert json.loads(run.stdout)["hip"]["version"] == text


def test_missing_functions_are_named(run_fake: RunFake, incomplete_hip: Path) -> None:
    run = run_fake(CALL, FLASH_ATTN_ROCM_HIP_LIBRARY=str(incomplete_hip))
    assert run.returncode != 0
    assert "HIP 6.4.43484 lacks these functions: hipModuleLaunchKernel, hipHostRegister" in run.stderr


def test_an_absent_runtime_is_reported_with_its_path_and_what_to_do(run_fake: RunFake) -> None:
    run = run_fake(CALL, FLASH_ATTN_ROCM_HIP_LIBRARY="/nowhere/libamdhip64.so")
    assert run.returncode != 0
    assert "/nowhere/libamdhip64.so (asked for): /nowhere/libamdhip64.so: cannot open shared object file" in run.stderr
    assert "FLASH_ATTN_ROCM_HIP_LIBRARY" in run.stderr


@pytest.mark.parametrize("part", ["empty", "header", "half", "last byte"])
def test_a_runtime_that_was_cut_off_does_not_end_the_process(
    run_fake: RunFake, fake_hip: Path, tmp_path: Path, part: str
) -> None:
    """dlopen maps such a file and dies of SIGBUS."""
    whole = fake_hip.read_bytes()
    length = {"empty": 0, "header": 80, "half": len(whole) // 2, "last byte": len(whole) - 1}[part]
    (tmp_path / "cut.so").write_bytes(whole[:length])
    run = run_fake(CALL, FLASH_ATTN_ROCM_HIP_LIBRARY=str(tmp_path / "cut.so"))
    assert run.returncode == 1
    assert "No usable HIP runtime" in run.stderr
    assert ("cut off: it has" if length else "file too short") in run.stderr


def test_a_runtime_that_is_a_pipe_is_rejected(run_fake: RunFake, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.so")
    run = run_fake(CALL, FLASH_ATTN_ROCM_HIP_LIBRARY=str(tmp_path / "pipe.so"))
    assert "pipe.so (asked for): not a regular file" in run.stderr


def test_the_path_of_a_runtime_need_not_be_text(run_fake: RunFake, fake_hip: Path, tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/hip\xff.so")
    Path(path).write_bytes(fake_hip.read_bytes())
    run = run_fake(CALL + DESCRIBE, FLASH_ATTN_ROCM_HIP_LIBRARY=path)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["hip"]["path"].endswith("hip\\xff.so")


def test_another_library_is_not_the_host_library(run_fake: RunFake, fake_hip: Path) -> None:
    run = run_fake(CALL, FLASH_ATTN_ROCM_LIBRARY=str(fake_hip))
    assert "LibraryNotFoundError: host library" in run.stderr
    assert "not the host library of this version" in run.stderr
    assert "conda install --force-reinstall flash-attn-rocm" in run.stderr


def test_a_library_that_is_not_hip_is_rejected(run_fake: RunFake, host_library: Path) -> None:
    run = run_fake(CALL, FLASH_ATTN_ROCM_HIP_LIBRARY=str(host_library))
    assert run.returncode != 0
    assert "not a HIP runtime: it lacks hipRuntimeGetVersion" in run.stderr


def test_the_search_lists_every_candidate(run_fake: RunFake) -> None:
    """Without an explicit path: the process first, then torch's directory, ROCM_PATH, the system."""
    program = (
        f"import os; del os.environ['FLASH_ATTN_ROCM_HIP_LIBRARY'], os.environ['FLASH_ATTN_ROCM_EMULATE']; {DESCRIBE}"
    )
    run = run_fake(program, ROCM_PATH="/no/rocm")
    error = json.loads(run.stdout)["hip"]["error"]
    expected = [
        "libamdhip64.so.7 (loaded in this process): not loaded",
        "libamdhip64.so.6 (loaded in this process): not loaded",
        "torch/lib/libamdhip64.so.7 (beside torch)",
        "/no/rocm/lib/libamdhip64.so.7 (ROCM_PATH)",
        "libamdhip64.so (system search)",
    ]
    positions = [error.find(text) for text in expected]
    assert -1 not in positions, error
    assert positions == sorted(positions)


def test_the_runtime_in_the_process_is_found_first(run_fake: RunFake, fake_hip: Path, tmp_path: Path) -> None:
    """A runtime that something else loaded (as a ROCm torch does) is used, by its file name."""
    loaded = tmp_path / "libamdhip64.so.7"
    loaded.write_bytes(fake_hip.read_bytes())
    program = f"""
import ctypes, json, os
del os.environ["FLASH_ATTN_ROCM_HIP_LIBRARY"], os.environ["FLASH_ATTN_ROCM_EMULATE"]
ctypes.CDLL({str(loaded)!r})
{DESCRIBE}
"""
    run = run_fake(program)
    report = json.loads(run.stdout)
    assert Path(report["hip"]["path"]) == loaded


def test_a_failed_launch_reports_error_kernel_grid_and_fault(run_fake: RunFake) -> None:
    run = run_fake(CALL, FAKE_HIP_LAUNCH_ERROR="719")
    assert run.returncode != 0
    assert "launching d64_nomask_seqlen with grid (2, 1, 1) failed: hipErrorLaunchFailure (719)" in run.stderr
    assert "fake fault report" in run.stderr
    names = [call["call"] for call in run.calls]
    assert names.count("hipHostRegister") == names.count("hipHostUnregister")


def test_a_failed_launch_leaves_no_error_behind_in_the_runtime(run_fake: RunFake) -> None:
    """torch asks for the thread's last error after launches of its own."""
    program = f"""
import ctypes, os, torch
try:
    exec({CALL!r})
except RuntimeError as error:
    print("hipErrorLaunchFailure" in str(error))
print(ctypes.CDLL(os.environ["FLASH_ATTN_ROCM_HIP_LIBRARY"]).hipGetLastError())
"""
    run = run_fake(program, FAKE_HIP_LAUNCH_ERROR="719")
    assert run.stdout.split() == ["True", "0"], run.stderr


def test_a_list_of_emulated_gpus_may_hold_blanks(kernel_device: str) -> None:
    """The emulated runtime itself takes none; Python writes the list back without them."""
    if kernel_device != "cpu":
        pytest.skip("a real GPU is in use")
    environment = os.environ | {"PYTHONPATH": str(SRC), "FLASH_ATTN_ROCM_EMULATE": " gfx1201, gfx1201 ,"}
    done = subprocess.run([sys.executable, "-c", DESCRIBE], env=environment, capture_output=True, text=True, check=True)
    assert [device["gfx"] for device in json.loads(done.stdout)["devices"]] == ["gfx1201", "gfx1201"]


def test_the_runtime_cannot_be_changed_after_its_first_use(run_fake: RunFake) -> None:
    program = (
        DESCRIBE
        + "; library = ops.load(); print(library.fa_rocm_use_hip_library(b'/other.so'), ops.last_error(library))"
    )
    run = run_fake(program)
    assert "-1 the HIP runtime" in run.stdout
    assert "/other.so can only be chosen before the first call" in run.stdout
