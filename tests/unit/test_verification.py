"""`flash-attn-rocm verify`: its cases reach every kernel, and crashes, hangs and errors become results."""

from __future__ import annotations

import faulthandler
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from flash_attn_rocm import backends
from flash_attn_rocm.cli import main, verify
from flash_attn_rocm.cli.output import check_writable
from flash_attn_rocm.verification import worker
from flash_attn_rocm.verification.cases import Case, plan_cases
from flash_attn_rocm.verification.worker import Result

PLAIN = {
    "op": "fmha_fwd",
    "mode": "batch",
    "mask": False,
    "bias": "none",
    "softcap": False,
    "dropout": False,
    "padding": "seqlen",
    "page": 0,
}


def rows(head_dims: tuple[int, ...], tile: tuple[int, int] = (64, 64)) -> list[dict[str, Any]]:
    return [
        PLAIN | {"dtype": dtype, "hdim_q": head_dim, "tile_m": tile[0], "tile_n": tile[1]}
        for dtype in ("fp16", "bf16")
        for head_dim in head_dims
    ]


def kernel_of(case: Case, head_dims: tuple[int, ...], tile: tuple[int, int]) -> tuple[str, int, bool, str] | None:
    """dtype, head dim, mask and padding of the kernel a case needs, from the contract of kernels.json."""
    if case.seqlen_q == 0 or case.seqlen_k == 0:
        return None
    head_dim = min(d for d in head_dims if d >= case.head_dim)
    right = 0 if case.causal else case.window[1]
    mask = (0 <= case.window[0] < case.seqlen_k - 1) or (0 <= right < case.seqlen_q - 1)
    whole = case.seqlen_q % tile[0] == 0 and case.seqlen_k % tile[1] == 0
    padding = "full" if head_dim != case.head_dim else "none" if whole else "seqlen"
    return case.dtype, head_dim, mask, padding


@pytest.mark.parametrize("head_dims", [(64, 128), (32, 64, 128, 256), (64,)])
@pytest.mark.parametrize("tile", [(64, 64), (128, 32)])
def test_the_cases_reach_every_kernel(head_dims: tuple[int, ...], tile: tuple[int, int]) -> None:
    reached = {kernel_of(case, head_dims, tile) for case in plan_cases(rows(head_dims, tile))} - {None}
    assert reached == {
        (dtype, head_dim, mask, padding)
        for dtype in ("fp16", "bf16")
        for head_dim in head_dims
        for mask in (False, True)
        for padding in ("none", "seqlen", "full")
    }


def test_each_kernel_with_features_has_a_call_of_its_own() -> None:
    base = PLAIN | {"dtype": "bf16", "hdim_q": 128, "tile_m": 64, "tile_n": 32}
    changes: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"mode": "group"}, {"mode": "group", "head_dim": 128}),
        ({"mode": "group", "mask": True, "padding": "full"}, {"mode": "group", "causal": True, "head_dim": 127}),
        ({"bias": "alibi"}, {"alibi": True, "mode": "batch"}),
        ({"softcap": True}, {"softcap": 4.0}),
        ({"dropout": True, "mode": "group"}, {"dropout_p": 0.25, "mode": "group"}),
        ({"op": "fmha_fwd_splitkv", "mode": "group"}, {"mode": "cache", "page": 0, "num_splits": 2}),
        ({"op": "fmha_fwd_splitkv", "mode": "group", "page": 16}, {"mode": "cache", "page": 48}),
        ({"op": "fmha_fwd_splitkv", "mode": "group", "page": 64}, {"mode": "cache", "page": 128}),
    ]
    cases = plan_cases([base | change for change, _ in changes])
    assert len(cases) == len(changes)
    for case, (_, wanted) in zip(cases, changes, strict=True):
        assert {name: getattr(case, name) for name in wanted} == wanted
        assert not case.plain
    assert len({case.name for case in cases}) == len(cases)


def test_each_backward_kernel_has_gradients_of_its_own() -> None:
    base = PLAIN | {
        "op": "fmha_bwd",
        "dtype": "bf16",
        "hdim_q": 128,
        "tile_m": 32,
        "tile_n": 64,
        "deterministic": False,
    }
    changes: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"deterministic": True}, {"head_dim": 128, "mode": "batch", "causal": False, "deterministic": True}),
        ({"mode": "group", "mask": True, "padding": "full"}, {"mode": "group", "causal": True, "head_dim": 120}),
        ({"bias": "alibi", "dropout": True}, {"alibi": True, "dropout_p": 0.25, "deterministic": False}),
    ]
    cases = plan_cases([base | change for change, _ in changes])
    assert len(cases) == len(changes)
    for case, (_, wanted) in zip(cases, changes, strict=True):
        assert {name: getattr(case, name) for name in wanted} == wanted
        assert case.backward
        assert not case.plain
        assert case.heads > case.heads_k  # so that the heads' sum runs
    assert len({case.name for case in cases}) == len(cases)


def test_kernels_of_our_own_need_no_case_of_their_own() -> None:
    row = PLAIN | {"op": "split_combine", "dtype": "bf16", "hdim_q": 256, "tile_m": 4, "tile_n": 1}
    plain = rows((64,))
    assert plan_cases([*plain, row]) == plan_cases(plain)


def test_without_kernels_there_is_a_default_grid_with_distinct_names() -> None:
    names = [case.name for case in plan_cases([])]
    assert len(names) > 40
    assert len(set(names)) == len(names)


def test_a_kernel_that_no_case_launched_is_named() -> None:
    results = [
        Result(Case("bf16", 64, 1, 1), "passed", launches={"a": 2, "b": 0}),
        Result(Case("bf16", 64, 1, 1), "error"),
    ]
    assert verify.kernels_not_executed([{"name": "a"}, {"name": "b"}, {"name": "c"}], results) == ["b", "c"]


CASE = Case("bf16", 64, 4, 4)


def _abort(case: Case, device: str) -> Result:
    faulthandler.disable()  # pytest's would print a traceback
    os.abort()


def _hang(case: Case, device: str) -> Result:
    time.sleep(60)
    raise AssertionError


def _raise(case: Case, device: str) -> Result:
    raise ValueError("bad news")


@pytest.mark.parametrize(
    ("run_case", "status", "detail"),
    [
        (_abort, "crashed", "killed by SIGABRT"),
        (_hang, "timeout", "no result after 1 s"),
        (_raise, "error", "ValueError: bad news"),
    ],
)
def test_a_case_that_does_not_return_is_reported(
    monkeypatch: pytest.MonkeyPatch, run_case: Any, status: str, detail: str
) -> None:
    """With fork the child sees the replaced function; the parent goes on."""
    import multiprocessing

    monkeypatch.setattr(worker, "run_case", run_case)
    result = worker.run_isolated(multiprocessing.get_context("fork"), CASE, "cpu", timeout_s=1.0)
    assert (result.status, result.detail) == (status, detail)
    assert not multiprocessing.active_children()


@pytest.fixture
def _plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("EMULATE", "BACKEND", "HIP_LIBRARY", "EMULATOR"):
        monkeypatch.delenv(f"FLASH_ATTN_ROCM_{name}", raising=False)
    monkeypatch.setenv("FLASH_ATTN_ROCM_KERNELS", str(tmp_path / "no kernels"))


def stub_results(monkeypatch: pytest.MonkeyPatch, status: str) -> None:
    monkeypatch.setattr(worker, "start_context", lambda: None)
    monkeypatch.setattr(
        worker, "run_isolated", lambda context, case, device, timeout: Result(case, status, detail="because")
    )


@pytest.mark.usefixtures("_plain_environment")
@pytest.mark.parametrize(
    ("status", "code"), [("passed", 0), ("failed", 1), ("crashed", 1), ("timeout", 1), ("error", 1)]
)
def test_exit_codes_and_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, status: str, code: int
) -> None:
    stub_results(monkeypatch, status)
    report = tmp_path / "report.json"
    assert main(["verify", "--filter", "fp16 d64", "--json", str(report)]) == code
    document = json.loads(report.read_text(encoding="utf-8"))
    assert document["passed"] == (code == 0)
    assert document["backend"] == "sdpa"
    assert {row["status"] for row in document["cases"]} == {status}
    printed = capsys.readouterr().out
    assert ("PASSED" if code == 0 else "FAILED") in printed
    assert ("because" in printed) == (code != 0)


@pytest.mark.usefixtures("_plain_environment")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["verify", "--emulate", "gfx803"], "GPU 'gfx803' is not supported; supported: "),
        (["verify", "--emulate", "gfx1201"], "conda install flash-attn-rocm-emulator"),
        (["verify", "--filter", "fp8"], "--filter 'fp8' matches none of"),
        (["verify", "--emulate", "GFX1201"], "--emulate: GPU 'GFX1201' is not supported; supported: "),
        (["verify", "--json", "/nowhere/report.json"], "cannot be written: there is no directory /nowhere"),
    ],
)
def test_a_bad_request_exits_with_2(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.setenv("FLASH_ATTN_ROCM_EMULATOR", str(tmp_path))
    monkeypatch.setattr(os, "environ", os.environ.copy())  # --emulate sets a variable
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.usefixtures("_plain_environment")
def test_the_cases_are_listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(worker, "run_isolated", None)  # nothing runs
    assert main(["verify", "--list"]) == 0
    names = capsys.readouterr().out.splitlines()
    assert names == [case.name for case in plan_cases([])]
    assert main(["verify", "--list", "--filter", "fp16 d64"]) == 0
    assert capsys.readouterr().out.splitlines() == [name for name in names if "fp16 d64" in name]
    assert main(["verify", "--list", "--json", "report.json"]) == 2
    assert "--list runs nothing to report on" in capsys.readouterr().err


@pytest.mark.usefixtures("_plain_environment")
def test_a_report_that_cannot_be_written_exits_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stub_results(monkeypatch, "passed")
    assert main(["verify", "--filter", "fp16 d64", "--json", "/nowhere/report.json"]) == 2
    assert "--json /nowhere/report.json: cannot be written: there is no directory /nowhere" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["frobnicate"], ["verify", "--timeout", "soon"]])
def test_unparsable_arguments_exit_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    assert "usage: flash-attn-rocm" in capsys.readouterr().err


@pytest.mark.usefixtures("_plain_environment")
def test_info_reports_what_would_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("FLASH_ATTN_ROCM_LIBRARY", str(tmp_path / "absent.so"))
    from flash_attn_rocm import ops

    monkeypatch.setattr(ops, "_library", None)
    assert main(["info", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    wanted = {"device": "cpu", "gfx": None, "call": "every call", "backend": "sdpa", "reason": "CPU tensors"}
    assert report["runs"][0].items() >= wanted.items()
    assert report["kernels"] == {}
    assert any("absent.so: no such file" in problem["problem"] for problem in report["problems"])
    assert main(["info"]) == 1
    assert "on cpu: sdpa, because: CPU tensors" in capsys.readouterr().out


@pytest.mark.usefixtures("_plain_environment")
@pytest.mark.parametrize("how", ["option", "variable", "real GPU"])
def test_torch_is_not_verified_in_place_of_kernels(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, how: str
) -> None:
    """FLASH_ATTN_ROCM_BACKEND=sdpa would make every case pass without a kernel having run."""
    stub_results(monkeypatch, "passed")
    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.setenv("FLASH_ATTN_ROCM_BACKEND", "sdpa")
    monkeypatch.setenv("FLASH_ATTN_ROCM_HIP_LIBRARY", "/x/libamdhip64.so")
    arguments = ["verify"]
    if how == "option":
        arguments += ["--emulate", "gfx1201"]
    elif how == "variable":
        monkeypatch.setenv("FLASH_ATTN_ROCM_EMULATE", "gfx1201")
    else:
        (tmp_path / "no kernels" / "gfx1201").mkdir(parents=True)
        (tmp_path / "no kernels" / "gfx1201" / "kernels.json").touch()
        choice = backends.Choice("sdpa", "FLASH_ATTN_ROCM_BACKEND=sdpa", "gfx1201")
        monkeypatch.setattr(backends, "choice_for", lambda device, index: choice)
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert "the kernels for gfx1201 would not be verified: backend sdpa is chosen" in printed.err
    assert "PASSED" not in printed.out


@pytest.mark.usefixtures("_plain_environment")
def test_installed_kernels_are_not_passed_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Without a GPU that torch can use, verify would check torch's attention, and that reads as success."""
    stub_results(monkeypatch, "passed")
    (tmp_path / "kernels" / "gfx1201").mkdir(parents=True)
    (tmp_path / "kernels" / "gfx1201" / "kernels.json").touch()
    monkeypatch.setenv("FLASH_ATTN_ROCM_KERNELS", str(tmp_path / "kernels"))
    monkeypatch.setattr(backends, "choice_for", lambda device, index: backends.Choice("sdpa", "CPU tensors"))
    assert main(["verify"]) == 2
    printed = capsys.readouterr()
    assert "the installed kernels (gfx1201) would not be verified: CPU tensors" in printed.err
    assert "--emulate gfx1201" in printed.err
    assert "PASSED" not in printed.out


@pytest.mark.usefixtures("_plain_environment")
@pytest.mark.parametrize("bad", ["directory", "absent/report.json"])
def test_a_report_that_cannot_be_written_is_noticed_before_any_case(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, bad: str
) -> None:
    (tmp_path / "directory").mkdir()
    monkeypatch.setattr(worker, "start_context", lambda: pytest.fail("a case was about to run"))
    assert main(["verify", "--json", str(tmp_path / bad)]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_looking_whether_a_report_can_be_written_leaves_no_file(tmp_path: Path) -> None:
    check_writable("--json", tmp_path / "new.json")
    assert not (tmp_path / "new.json").exists()
    (tmp_path / "old.json").write_text("old")
    check_writable("--json", tmp_path / "old.json")
    assert (tmp_path / "old.json").read_text() == "old"


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "1e300", "soon"])
def test_a_time_limit_that_is_none_is_a_bad_request(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["verify", f"--timeout={value}"])
    assert raised.value.code == 2
    assert "argument --timeout" in capsys.readouterr().err
