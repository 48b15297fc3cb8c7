"""`flash-attn-rocm bench` from end to end: small shapes on the CPU and on the emulated GPU."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import struct
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import flash_attn_rocm
from flash_attn_rocm.benchmark.methods import METHODS, REFERENCE
from flash_attn_rocm.cli import bench, main
from tests.api.conftest import RunFake
from tests.api.fake_runtime import kernel, manifest
from tests.api.locked_packages import locked_packages

QUICK = ["--warmup", "0", "--measure", "0", "--batch", "1", "--heads", "2", "--headdim", "64"]


@pytest.fixture(autouse=True)
def _no_forced_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLASH_ATTN_ROCM_BACKEND", raising=False)
    monkeypatch.delenv("FLASH_ATTN_ROCM_EMULATE", raising=False)


def read(path: Path) -> dict[str, Any]:
    """A report, valid by its schema."""
    document = json.loads(path.read_text(encoding="utf-8"))
    schema = Path(flash_attn_rocm.__file__).parent / "schemas" / "bench.json"
    jsonschema.validate(document, json.loads(schema.read_text(encoding="utf-8")))
    return dict(document)


def test_the_emulated_gpu(
    kernel_device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CK's kernels in both directions, against SDPA; causal, with fewer heads of k."""
    monkeypatch.delenv("FLASH_ATTN_ROCM_BACKEND")
    where = ["--device", "cuda"] if kernel_device == "cuda" else ["--emulate", "gfx1201"]
    shape = [*QUICK, "--seqlens", "64", "96", "--heads-k", "1", "--causal"]
    arguments = ["bench", *shape, *where, "--methods", "ck", "sdpa", "--json", str(tmp_path / "a.json")]
    assert main(arguments) == 0
    document = read(tmp_path / "a.json")
    found = {(r["direction"], r["method"], r["seqlen"]): r for r in document["results"]}
    assert len(found) == 8
    assert {row["status"] for row in found.values()} == {"ok"}
    assert all(row["tflops"] > 0 and row["samples"] >= 10 and row["ratio"] > 0 for row in found.values())
    printed = capsys.readouterr().out
    assert "forward: median latency, TFLOPS, speed relative to PyTorch SDPA" in printed
    assert "FA2 CK" in printed
    if kernel_device == "cpu":
        assert document["machine"]["emulated"] == ["gfx1201"]
        assert "these are times of the emulated gpu" in " ".join(printed.lower().split())
    assert main(["bench", "--compare", str(tmp_path / "a.json"), str(tmp_path / "a.json")]) == 0
    assert "1.00" in capsys.readouterr().out


def test_torchs_gradients_are_not_timed_as_cks(run_fake: RunFake) -> None:
    """Kernels for forward alone; the fake runtime computes nothing, so that forward is wrong."""
    program = """
from flash_attn_rocm.benchmark.methods import METHODS
from flash_attn_rocm.benchmark.problem import Problem
from flash_attn_rocm.benchmark.run import DIRECTIONS, run
from flash_attn_rocm.benchmark.timing import Effort
import torch
method = METHODS[-1]
for headdim in (64, 96):
    problem = Problem(32, heads=2, heads_k=2, headdim=headdim)
    for row in run([method], [problem], DIRECTIONS, torch.device("cpu"), Effort(0.0, 0.0)):
        print(row.method, row.direction, headdim, row.status, row.detail)
"""
    lines = run_fake(program, document=manifest([kernel("only", padding="seqlen")])).stdout.splitlines()
    assert [line.split()[:4] for line in lines] == [
        ["ck", "forward", "64", "wrong"], ["ck", "backward", "64", "unavailable"],
        ["ck", "forward", "96", "unavailable"], ["ck", "backward", "96", "unavailable"],
    ]  # fmt: skip
    assert "no backward kernel is installed for bf16 b1 s32 h2 d64; torch computes its gradients" in lines[1]
    assert "head dim is 96" in lines[2]


def test_what_is_not_installed_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "a.json"
    assert main(["bench", *QUICK, "--seqlens", "32", "--device", "cpu", "--json", str(report)]) == 0
    rows = [row for row in read(report)["results"] if row["method"] == "ck"]
    assert {row["status"] for row in rows} == {"unavailable"}
    printed = " ".join(capsys.readouterr().out.split())
    assert "SageAttention V1: unavailable: not installed: no module" in printed
    assert "FA2 CK: unavailable: FLASH_ATTN_ROCM_BACKEND=ck cannot be followed" in printed


def test_a_run_that_measures_nothing_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *QUICK, "--seqlens", "32", "--device", "cpu", "--methods", "ck"]) == 1
    assert "FA2 CK: unavailable" in " ".join(capsys.readouterr().out.split())


def test_a_comparison_writes_no_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "a.json"
    assert main(["bench", "--compare", "a.json", "b.json", "--json", str(report)]) == 2
    assert "--compare measures nothing to write" in capsys.readouterr().err
    assert not report.exists()


def test_a_method_with_its_arguments_in_the_wrong_order_fails_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = REFERENCE.load
    swapped = dataclasses.replace(
        METHODS[-1],
        layout="bhsd",
        variables={},
        lacks=REFERENCE.lacks,
        load=lambda device: lambda q, k, v, causal: right(device)(q, v, k, causal),
    )
    monkeypatch.setattr(bench, "METHODS", (REFERENCE, swapped))
    report = tmp_path / "a.json"
    assert main(["bench", *QUICK, "--seqlens", "64", "--device", "cpu", "--json", str(report)]) == 1
    rows = [row for row in read(report)["results"] if row["method"] == "ck"]
    assert [(row["status"], row["median_ms"], row["tflops"]) for row in rows] == [("wrong", None, None)] * 2
    printed = " ".join(capsys.readouterr().out.split())
    assert "WRONG" in printed
    assert "FA2 CK forward at 64: wrong: relative error" in printed


def test_the_plot_is_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line a method in each of two diagrams, over the sequence lengths that ran."""
    if importlib.util.find_spec("matplotlib") is None:
        monkeypatch.setattr(sys, "path", [*sys.path, str(locked_packages("bench"))])
    from matplotlib.axes import Axes

    lines: list[tuple[str, list[float]]] = []
    plot = Axes.plot
    monkeypatch.setattr(
        Axes, "plot", lambda self, x, y, **kw: (lines.append((kw["label"], list(x))), plot(self, x, y, **kw))[1]
    )
    picture = tmp_path / "plot.png"
    assert main(["bench", *QUICK, "--seqlens", "64", "32", "--device", "cpu", "--plot", str(picture)]) == 0
    assert lines == [("PyTorch SDPA", [32, 64])] * 2
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", picture.read_bytes()[16:24])
    assert (width, height) == (1536, 576)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "sees no GPU; `flash-attn-rocm info` says why"),
        (["--device", "cuda:7"], "sees no GPU"),
        (["--device", "meta"], "--device meta: allowed: cuda, cuda:N, cpu"),
        (["--device", "nonsense"], "--device nonsense: "),
        (["--emulate", "gfx000"], "--emulate: GPU 'gfx000' is not supported"),
        (["--device", "cpu", "--heads", "4", "--heads-k", "3"], "--heads-k 3 does not divide --heads 4"),
        (["--device", "cpu", "--json", "/nowhere/a.json"], "there is no directory /nowhere"),
        (["--compare", "/nowhere/a.json", "/nowhere/b.json"], "/nowhere/a.json: cannot be read"),
    ],
)
def test_requests_that_cannot_be_carried_out(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main(["bench", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "flash-attn-rocm bench --json"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bench", "--seqlens", "abc"], "abc; allowed: whole numbers from 1"),
        (["bench", "--batch", "0"], "0; allowed: whole numbers from 1"),
        (["bench", "--measure", "nan"], "nan; allowed: 0 to 3600 seconds"),
        (["tune", "--warmup", "soon"], "soon; allowed: 0 to 3600 seconds"),
        (["verify", "--timeout", "soon"], "soon is no time limit; allowed: above 0 to"),
    ],
)
def test_options_that_are_no_numbers(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert message in capsys.readouterr().err
