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


def test_profile(kernel_device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Counts per kernel over all cases, in the table and in the report; each case keeps its own."""
    if kernel_device == "cuda":
        pytest.skip("a GPU does not count its instructions")
    report = tmp_path / "report.json"
    assert main(["verify", "--profile", "--filter", "bf16 d64 b1 q1", "--json", str(report)]) == 0
    document = json.loads(report.read_text(encoding="utf-8"))
    launches = [row["launches"] or {} for row in document["cases"]]
    assert document["executed"]
    for name, counts in document["executed"].items():
        assert counts["launches"] == sum(row.get(name, 0) for row in launches)
        assert all(counts[key] > 0 for key in ("matrix", "valu", "lds", "global", "scalar", "branch", "wait"))
        assert counts["matrix"] == sum(
            (row["executed"] or {}).get(name, {}).get("matrix", 0) for row in document["cases"]
        )
    printed = capsys.readouterr().out
    assert "executed wave instructions (counts, not time)" in printed
    assert all(f"{counts['matrix']:,}" in printed for counts in document["executed"].values())


def test_profile_needs_the_emulated_gpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("FLASH_ATTN_ROCM_EMULATE", raising=False)
    monkeypatch.setenv("FLASH_ATTN_ROCM_BACKEND", "sdpa")
    assert main(["verify", "--profile", "--filter", "none of them"]) == 2
    assert "--emulate GFX" in capsys.readouterr().err
