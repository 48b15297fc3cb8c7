"""`flash-attn-rocm tune` from end to end, on the emulated GPU: what it measures, writes and refuses."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from flash_attn_rocm import backends, flash_attn_func, policy
from flash_attn_rocm.backends import ck_backward
from flash_attn_rocm.benchmark import run, tuning
from flash_attn_rocm.benchmark.timing import Timing
from flash_attn_rocm.cli import main

QUICK = ["--warmup", "0", "--measure", "0", "--heads", "2", "--headdim", "64", "--causal"]


@pytest.fixture
def user_file(kernel_device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place for a policy file, and no backend forced."""
    if kernel_device != "cpu":
        pytest.skip("a real GPU is in use")
    monkeypatch.delenv("FLASH_ATTN_ROCM_BACKEND")
    path = tmp_path / "policy.toml"
    monkeypatch.setenv("FLASH_ATTN_ROCM_POLICY", str(path))
    policy.user_rules.cache_clear()
    backends._backward_kernels.cache_clear()
    yield path
    policy.user_rules.cache_clear()
    backends._backward_kernels.cache_clear()


def tune(*arguments: str) -> int:
    """The command on the emulated GPU."""
    return main(["tune", *QUICK, "--emulate", "gfx1201", "--seqlens", "64", "96", *arguments])


@pytest.fixture
def milliseconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Times to find in place of the real ones, one after another."""
    times: list[float] = []
    monkeypatch.setattr(run, "measure", lambda call, device, effort: Timing(times.pop(0), 1.0, 1.0, 10))
    return times


@pytest.mark.parametrize("sdpa_ms", [0.5, 2.0])
def test_what_is_measured_decides(user_file: Path, milliseconds: list[float], sdpa_ms: float) -> None:
    """For each shape CK then torch, forward and then backward; forward CK takes half of torch's time."""
    milliseconds += [1.0, 2.0] * 2 + [1.0, sdpa_ms] * 2
    assert tune("--output", str(user_file)) == 0
    assert milliseconds == []
    rules = policy.user_rules()
    assert rules["gfx1201", "forward"].backend == "ck"
    assert rules["gfx1201", "backward"].backend == ("ck" if sdpa_ms > 1.0 else "sdpa")
    assert "ck is 2.00 times as fast as sdpa over 2 shapes" in rules["gfx1201", "forward"].evidence
    assert policy.read(user_file)["gfx1201", "backward"]["measured"] == [
        {"shape": f"bf16 b1 s{n} h2 d64 causal", "ck_ms": 1.0, "sdpa_ms": sdpa_ms} for n in (64, 96)
    ]


def test_a_process_follows_the_file(user_file: Path, milliseconds: list[float]) -> None:
    """Gradients come from torch where the file says so."""
    milliseconds += [1.0, 2.0] * 2 + [4.0, 1.0] * 2
    assert backends.backward_kernels("cpu", None) is not None
    assert tune("--output", str(user_file)) == 0
    policy.user_rules.cache_clear()
    backends._backward_kernels.cache_clear()
    assert backends.backward_kernels("cpu", None) is None
    q = torch.randn(1, 40, 2, 64, dtype=torch.bfloat16, requires_grad=True)
    flash_attn_func(q, q, q, causal=True).sum().backward()
    assert q.grad is not None
    assert bool(torch.isfinite(q.grad).all())


def test_where_torch_runs_forward_its_gradients_do_too(user_file: Path, milliseconds: list[float]) -> None:
    milliseconds += [2.0, 1.0] * 2
    assert tune("--output", str(user_file)) == 0
    rules = policy.user_rules()
    assert [rules["gfx1201", name].backend for name in policy.DIRECTIONS] == ["sdpa", "sdpa"]
    assert "whose gradients are torch's" in rules["gfx1201", "backward"].evidence


def test_where_backward_kernels_lack_torch_computes_gradients(
    user_file: Path, milliseconds: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ck_backward, "covers", lambda *args, **options: False)
    milliseconds += [1.0, 2.0] * 2
    assert tune("--output", str(user_file)) == 0
    rule = policy.user_rules()["gfx1201", "backward"]
    assert rule.backend == "sdpa"
    assert "no backward kernel is installed for bf16 b1 s64 h2 d64 causal" in rule.evidence


def test_one_direction_leaves_the_other(user_file: Path, milliseconds: list[float]) -> None:
    milliseconds += [1.0, 2.0] * 2
    policy.write(user_file, {("gfx1201", "forward"): {"backend": "ck", "evidence": "mine"}})
    assert tune("--output", str(user_file), "--direction", "backward") == 0
    tables = policy.read(user_file)
    assert tables["gfx1201", "forward"] == {"backend": "ck", "evidence": "mine"}
    assert tables["gfx1201", "backward"]["backend"] == "ck"


def test_real_times_and_nothing_written(user_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune("--dry-run") == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "gfx1201 forward: " in printed
    assert "gfx1201 backward: " in printed
    assert "times as fast as sdpa over 2 shapes" in printed
    assert not user_file.exists()


def test_times_of_the_emulated_gpu_are_not_written_to_the_users_file(
    user_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tune() == 2
    assert "the times of an emulated GPU mean nothing" in capsys.readouterr().err
    assert not user_file.exists()


def test_a_malformed_file_is_named_before_anything_is_measured(
    user_file: Path, milliseconds: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    user_file.write_text("schema = 1\n[gfx1201.forward]\nbackend = 'rocm'\nevidence = ''\n", encoding="utf-8")
    assert tune("--output", str(user_file)) == 2
    assert f"policy file {user_file}, line 3: gfx1201.forward.backend is 'rocm'" in capsys.readouterr().err


def test_no_directory_is_made(user_file: Path, milliseconds: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    path = user_file.parent / "new" / "policy.toml"
    assert tune("--output", str(path)) == 2
    assert (
        f"--output {path}: cannot be written: there is no directory {path.parent}. Make it" in capsys.readouterr().err
    )
    assert not path.parent.exists()


@pytest.mark.parametrize("text", ["[tool.mine]\nkey = 1\n", "some notes\n", ""])
def test_a_file_of_something_else_is_not_written_over(
    user_file: Path, milliseconds: list[float], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    user_file.write_text(text, encoding="utf-8")
    assert tune("--output", str(user_file)) == 2
    assert f"policy file {user_file}" in capsys.readouterr().err
    assert user_file.read_text(encoding="utf-8") == text


def test_rules_that_are_replaced_are_named(
    user_file: Path, milliseconds: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    milliseconds += [1.0, 2.0] * 4
    policy.write(user_file, {("gfx1201", "forward"): {"backend": "sdpa", "evidence": "mine"}})
    assert tune("--output", str(user_file)) == 0
    assert f"written to {user_file} in place of its rules for gfx1201 forward: " in capsys.readouterr().out


def test_a_backend_with_a_wrong_result_is_not_chosen(
    user_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = tuning.CK.load
    wrong = dataclasses.replace(tuning.CK, load=lambda d: lambda q, k, v, causal: right(d)(q, v, k, causal))
    monkeypatch.setattr(tuning, "CK", wrong)
    assert tune("--output", str(user_file)) == 2
    assert "forward of bf16 b1 s64 h2 d64 causal on backend ck: wrong: relative error" in capsys.readouterr().err
    assert not user_file.exists()


def test_without_an_amd_gpu_there_is_nothing_to_choose(
    user_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLASH_ATTN_ROCM_EMULATE")
    assert main(["tune", *QUICK, "--device", "cpu", "--seqlens", "32", "--dry-run"]) == 2
    assert "on an AMD GPU: CPU tensors" in capsys.readouterr().err


def test_ck_forward_and_torch_backward_can_be_forced(user_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASH_ATTN_ROCM_BACKEND", "ck,sdpa")
    assert backends.choice_for("cpu", None).backend == "ck"
    assert backends.backward_kernels("cpu", None) is None
