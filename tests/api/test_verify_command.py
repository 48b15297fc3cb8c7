"""`flash-attn-rocm verify` from end to end: right kernels pass, wrong results and failing launches do not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flash_attn_rocm.cli import main
from tests.api.conftest import RunFake

PROGRAM = """
from flash_attn_rocm.cli import main
print("exit code", main(["verify", "--json", {report!r}{extra}]))
"""


def test_kernels_pass(kernel_device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A few cases; the whole grid runs when the package is built."""
    report = tmp_path / "report.json"
    assert main(["verify", "--filter", "bf16 d64 b1 q1", "--json", str(report)]) == 0
    document = json.loads(report.read_text(encoding="utf-8"))
    assert document["passed"]
    assert document["backend"] == "ck"
    assert len(document["cases"]) >= 5
    launched = {name for row in document["cases"] for name in row["launches"]}
    assert any("_mask_" in name for name in launched)
    printed = capsys.readouterr().out
    assert "PASSED" in printed
    assert "kernels executed" not in printed  # a filter leaves some out


def test_kernels_that_compute_nothing_fail(run_fake: RunFake, tmp_path: Path) -> None:
    """The fake runtime leaves the output as it was: the numbers must not pass."""
    report = tmp_path / "report.json"
    run = run_fake(PROGRAM.format(report=str(report), extra=', "--filter", "d64"'))
    assert "exit code 1" in run.stdout
    assert "FAILED" in run.stdout
    rows = json.loads(report.read_text(encoding="utf-8"))["cases"]
    empty = [row for row in rows if row["case"]["seqlen_q"] == 0 or row["case"]["seqlen_k"] == 0]
    assert {row["status"] for row in empty} == {"passed"}
    assert {row["status"] for row in rows if row not in empty} == {"failed"}


def test_failing_launches_are_reported_with_their_text(run_fake: RunFake, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    program = PROGRAM.format(report=str(report), extra=', "--filter", "d64 b1 q200 k1"')
    run = run_fake(program, FAKE_HIP_LAUNCH_ERROR="719")
    assert "exit code 1" in run.stdout
    (row,) = json.loads(report.read_text(encoding="utf-8"))["cases"]
    assert row["status"] == "error"
    assert "hipErrorLaunchFailure (719)" in row["detail"]
    assert "fake fault report" in row["detail"]
