"""The parts of `flash-attn-rocm bench`: operations counted, exact results, wrong methods caught, times, clocks."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from rich.console import Console
from torch import Tensor

import flash_attn_rocm
from flash_attn_rocm.benchmark import compare, plot, problem, report, timing
from flash_attn_rocm.benchmark.clocks import State, amd_state, nvidia_state
from flash_attn_rocm.benchmark.methods import METHODS, REFERENCE, Method, NotAvailableError, package_method
from flash_attn_rocm.benchmark.problem import Problem, draw, exact, relative_error
from flash_attn_rocm.benchmark.run import DIRECTIONS, Row, run
from flash_attn_rocm.benchmark.timing import Effort, Timing, summarise
from flash_attn_rocm.errors import InputError
from flash_attn_rocm.reference import Mask, Scoring, attention_in

CPU = torch.device("cpu")
QUICK = Effort(0.0, 0.0)
SMALL = Problem(96, batch=2, heads=4, heads_k=2, headdim=32)


@pytest.mark.parametrize(
    ("shape", "direction", "flops"),
    [
        # 4 * 16 heads * 4096^2 * 128, as FlashAttention's papers count; 2.5 times that backward; half if causal.
        (Problem(4096), "forward", 137_438_953_472.0),
        (Problem(4096, causal=True), "forward", 68_719_476_736.0),
        (Problem(4096), "backward", 343_597_383_680.0),
        (Problem(2, batch=3, heads=5, heads_k=1, headdim=7), "forward", 4.0 * 3 * 5 * 4 * 7),
    ],
)
def test_operations_are_counted_the_standard_way(shape: Problem, direction: str, flops: float) -> None:
    assert shape.flops(direction) == flops


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("chunk_bytes", [1 << 30, 4 * 2 * 4 * 96 * 40])
def test_the_exact_result_and_its_gradients(causal: bool, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against float64 and torch's autograd; in one chunk, and in chunks of 40 rows of which the last is smaller."""
    monkeypatch.setattr(problem, "_CHUNK_BYTES", chunk_bytes)
    shape = dataclasses.replace(SMALL, causal=causal)
    inputs, dout = draw(shape, CPU)
    found = exact(shape, inputs, dout)
    leaves = inputs.map(lambda tensor: tensor.double().requires_grad_())
    groups = shape.heads // shape.heads_k
    scores = torch.einsum("bihd,bjhd->bhij", leaves.q, leaves.k.repeat_interleave(groups, 2)) / math.sqrt(shape.headdim)
    if causal:
        scores = scores + torch.full((96, 96), float("-inf"), dtype=torch.float64).triu(1)
    out = torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), leaves.v.repeat_interleave(groups, 2))
    mask = Mask(right=0) if causal else Mask()
    again, _ = attention_in(torch.float64, *inputs, Scoring(shape.headdim**-0.5, mask))
    assert torch.allclose(again, out, atol=1e-12)
    assert torch.allclose(found.out.double(), out, atol=2e-6)
    assert found.grads is not None
    for grad, wanted in zip(found.grads, torch.autograd.grad(out, list(leaves), dout.double()), strict=True):
        assert torch.allclose(grad.double(), wanted, atol=2e-5)


def test_one_wrong_row_counts() -> None:
    exactly = torch.randn(1, 4096, 2, 64, generator=torch.Generator().manual_seed(0))
    assert relative_error(exactly.bfloat16(), exactly) < 0.004
    wrong = exactly.clone()
    wrong[0, 17, 1] = -wrong[0, 17, 1]
    assert float((wrong - exactly).norm() / exactly.norm()) < 0.04  # hardly seen in the whole
    assert relative_error(wrong, exactly) == pytest.approx(0.5, rel=1e-3)
    wrong[0, 17, 1, 0] = math.nan
    assert relative_error(wrong, exactly) == math.inf
    assert relative_error(exactly[:, 1:], exactly) == math.inf


def method(attention: Callable[..., Tensor], **changes: Any) -> Method:
    """SDPA but for this."""
    return dataclasses.replace(REFERENCE, **({"name": "tested", "load": lambda device: attention} | changes))


def sdpa(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """What is right."""
    return REFERENCE.load(CPU)(q, k, v, causal)


WRONG: dict[str, Callable[..., Tensor]] = {
    "k and v exchanged": lambda q, k, v, causal: sdpa(q, v, k, causal),
    "q and k exchanged": lambda q, k, v, causal: sdpa(k, q, v, causal),
    "causal passed as the scale": lambda q, k, v, causal: torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=causal, scale=float(causal) + 1.0
    ),
    "causal ignored": lambda q, k, v, causal: sdpa(q, k, v, False),
    "heads and rows exchanged": lambda q, k, v, causal: sdpa(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), causal
    ).transpose(1, 2),
    "not finite": lambda q, k, v, causal: sdpa(q, k, v, causal) / 0.0,
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_wrong_method_is_not_timed(name: str, direction: str) -> None:
    shape = dataclasses.replace(SMALL, heads_k=4, causal=True)
    (row,) = run([method(WRONG[name])], [shape], [direction], CPU, QUICK)
    assert row.status == "wrong"
    assert row.timing is None
    assert row.error is not None
    assert row.error > 0.1
    assert "not timed" in row.detail


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("causal", [False, True])
def test_right_methods_are_timed_in_both_directions(dtype: str, causal: bool) -> None:
    """SDPA heads first, and this package's function, whose layout is the other."""
    other = dataclasses.replace(package_method("sdpa", "this package"), name="package")
    shape = dataclasses.replace(SMALL, dtype=dtype, causal=causal)
    rows = run([REFERENCE, other], [shape], DIRECTIONS, CPU, QUICK)
    assert [(row.method, row.direction, row.status) for row in rows] == [
        (name, direction, "ok") for name in ("sdpa", "package") for direction in DIRECTIONS
    ]
    for row in rows:
        assert row.timing is not None
        assert row.timing.samples == 10
        assert row.tflops == pytest.approx(shape.flops(row.direction) / row.timing.median_ms / 1e9)


def test_methods_that_raise_or_are_absent_do_not_stop_the_others() -> None:
    def raise_(*_: object) -> Tensor:
        raise RuntimeError("no kernel image\nsecond line")

    def absent(device: torch.device) -> Callable[..., Tensor]:
        raise NotAvailableError("not installed: no module nowhere")

    tested = [method(raise_), method(sdpa, load=absent), method(sdpa, backward=False)]
    rows = run(tested, [SMALL], DIRECTIONS, CPU, QUICK)
    assert [(row.status, row.detail) for row in rows] == [
        ("failed", "RuntimeError: no kernel image"),
        ("failed", "RuntimeError: no kernel image"),
        ("unavailable", "not installed: no module nowhere"),
        ("unavailable", "not installed: no module nowhere"),
        ("ok", ""),
        ("unavailable", "has no backward"),
    ]


def test_methods_say_why_they_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine without GPU, SageAttention and Triton."""
    monkeypatch.delenv("FLASH_ATTN_ROCM_EMULATE", raising=False)
    reasons = {}
    for entry in METHODS[1:]:
        with entry.in_use(), pytest.raises(NotAvailableError) as raised:
            entry.load(CPU)
        reasons[entry.name] = str(raised.value)
    assert "pip install sageattention==1.0.6" in reasons["sage"]
    assert "triton" in reasons["flex"]
    assert "ROCm build of torch" in reasons["fa2-triton"]
    assert "CK kernels need an AMD GPU" in reasons["ck"]


def test_variables_are_set_while_a_method_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASH_ATTN_ROCM_BACKEND", "sdpa")
    package = next(entry for entry in METHODS if entry.name == "ck")
    with package.in_use():
        assert os.environ["FLASH_ATTN_ROCM_BACKEND"] == "ck"
    assert os.environ["FLASH_ATTN_ROCM_BACKEND"] == "sdpa"


def test_median_and_percentiles() -> None:
    found = summarise([float(n) for n in range(1, 102)])
    assert found == Timing(51.0, 11.0, 91.0, 101)
    assert found.spread == pytest.approx(80 / 51)


def test_a_call_is_warmed_up_and_then_timed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of 2 ms whose first run takes a second of a clock of our own."""
    now = 0.0
    runs = 0

    def call() -> None:
        nonlocal now, runs
        now += 1.0 if runs == 0 else 0.002
        runs += 1

    monkeypatch.setattr(timing.time, "perf_counter", lambda: now)
    found = timing.measure(call, CPU, Effort(warmup_s=0.1, measure_s=0.05))
    assert found.median_ms == pytest.approx(2.0)
    assert found.p90_ms == pytest.approx(2.0)
    assert found.samples in (24, 25)
    assert 1 + 50 <= runs - found.samples <= 1 + 51


def test_the_state_of_an_amd_gpu(tmp_path: Path) -> None:
    """The files as amdgpu has them: microwatts, hertz, and a table of clocks."""
    sensors = tmp_path / "0000:03:00.0" / "hwmon" / "hwmon4"
    sensors.mkdir(parents=True)
    for name, text in (("freq1_input", "2725000000"), ("power1_average", "301000000"), ("power1_cap", "304000000")):
        (sensors / name).write_text(f"{text}\n", encoding="ascii")
    device = sensors.parent.parent
    (device / "pp_dpm_sclk").write_text("0: 500Mhz\n1: 2725Mhz *\n2: 3150Mhz\n", encoding="ascii")
    (device / "power_dpm_force_performance_level").write_text("auto\n", encoding="ascii")
    assert amd_state("0000:03:00.0", tmp_path) == State(2725.0, 3150.0, 301.0, 304.0, "auto")
    (sensors / "power1_average").unlink()
    (sensors / "power1_input").write_text("20000000\n", encoding="ascii")
    assert amd_state("0000:03:00.0", tmp_path).power_w == 20.0
    assert amd_state("0000:04:00.0", tmp_path) == State()


@pytest.mark.skipif(sys.platform == "win32", reason="the tool is a shell script")
def test_the_state_of_an_nvidia_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text('#!/bin/sh\necho "$@" >"$0.log"; echo "1980, 1980, 612.40, [N/A]"\n', encoding="ascii")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert nvidia_state("0000:81:00.0") == State(1980.0, 1980.0, 612.4, None, None)
    assert "--id=0000:81:00.0" in tool.with_name("nvidia-smi.log").read_text(encoding="ascii")
    tool.write_text("#!/bin/sh\nexit 9\n", encoding="ascii")
    assert nvidia_state("0000:81:00.0") == State()


def document(speed: float = 1.0, gpu: str = "Card") -> dict[str, Any]:
    """A report of two methods on two shapes, one of them wrong on the second; `speed` times as fast as the first."""
    shapes = [Problem(1024), Problem(2048)]
    rows = [
        Row(
            "forward",
            "sdpa",
            shape,
            "ok",
            "",
            0.002,
            0.02,
            Timing(4.0 * n / speed, 3.9, 4.1, 20),
            State(2000.0, None, 250.0),
        )
        for n, shape in enumerate(shapes, 1)
    ]
    rows.append(
        Row("forward", "ck", shapes[0], "ok", "", 0.002, 0.02, Timing(2.0 / speed, 2.0, 2.1, 20), State(2100.0))
    )
    rows.append(Row("forward", "ck", shapes[1], "wrong", "relative error inf, allowed 0.02: not timed", math.inf, 0.02))
    rows.append(Row("forward", "sage", shapes[0], "unavailable", "not installed: no module sageattention"))
    machine = report.describe_machine(CPU, METHODS) | {"gpu": gpu}
    return report.make_document(machine, rows)


def text(table: object) -> str:
    """A table as it is printed."""
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


def test_a_report_is_valid_by_its_schema() -> None:
    path = Path(flash_attn_rocm.__file__).parent / "schemas" / "bench.json"
    schema = json.loads(path.read_text(encoding="utf-8"))
    jsonschema.validators.validator_for(schema).check_schema(schema)
    made = json.loads(json.dumps(document(), allow_nan=False))
    jsonschema.validate(made, schema)
    by_key = {(r["method"], r["seqlen"]): r for r in made["results"]}
    assert by_key["ck", 1024]["ratio"] == 2.0
    assert by_key["sdpa", 2048]["ratio"] == 1.0
    assert by_key["sdpa", 1024]["tflops"] == pytest.approx(4 * 16 * 1024**2 * 128 / 4e-3 / 1e12)
    assert by_key["ck", 2048]["error"] is None


def test_the_table_and_the_remarks() -> None:
    made = document()
    ((title, table),) = report.tables(made)
    assert title == "forward: median latency, TFLOPS, speed relative to PyTorch SDPA"
    printed = text(table)
    assert "4.000 ms  2  1.00x" in printed
    assert "2.000 ms  4  2.00x" in printed
    assert "WRONG" in printed
    assert "SageAttention" not in printed
    lines = report.remarks(made)
    assert "SageAttention V1: unavailable: not installed: no module sageattention" in lines
    assert "FA2 CK forward at 2048: wrong: relative error inf, allowed 0.02: not timed" in lines
    assert "clock: 2000 to 2100 MHz" in lines
    assert lines[-1].startswith("Clocks and power are read right after")


def test_two_reports_side_by_side() -> None:
    printed = text(compare.compare(document(), document(2.0, "Faster card")))
    assert "A: Card, torch" in printed
    assert "B: Faster card, torch" in printed
    rows = [" ".join(line.replace("│", " ").split()) for line in printed.splitlines()]
    assert "forward sdpa bf16 b1 s1024 h16 d128 4.000 2.1 2.000 4.3 2.00" in rows
    assert "forward ck bf16 b1 s2048 h16 d128" not in " ".join(rows)  # timed on neither
    other = document()
    other["results"] = [result | {"headdim": 64} for result in other["results"]]
    with pytest.raises(InputError, match="no method and shape in common"):
        compare.compare(document(), other)


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "cannot be read"), ("{", "not valid JSON"), ("[]", "not a report"), ('{"schema": 2, "results": []}', "2")],
)
def test_a_file_that_is_no_report(tmp_path: Path, content: str | None, problem: str) -> None:
    path = tmp_path / "a.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=problem):
        report.read(path)


def test_a_plot_without_matplotlib_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(
        InputError, match="--plot needs matplotlib, which is not installed: conda install matplotlib-base"
    ):
        plot.draw(document(), tmp_path / "plot.png")
