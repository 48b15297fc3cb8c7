"""`flash-attn-rocm info` from end to end: on the emulated GPU, and on broken installations."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch

import flash_attn_rocm
from flash_attn_rocm import backends, policy
from flash_attn_rocm.cli import main
from flash_attn_rocm.limits import NAMED_DTYPES
from tests.api.conftest import RunFake
from tests.api.fake_runtime import kernel, manifest

PROGRAM = "from flash_attn_rocm.cli import main; print(main(['info', '--json']))"


@pytest.fixture(autouse=True)
def user_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """No policy file of the user who runs the tests."""
    path = tmp_path / "policy.toml"
    monkeypatch.setenv("FLASH_ATTN_ROCM_POLICY", str(path))
    policy.user_rules.cache_clear()
    yield path
    policy.user_rules.cache_clear()


def schema() -> dict[str, Any]:
    """The JSON Schema that describes the report."""
    path = Path(flash_attn_rocm.__file__).parent / "schemas" / "info.json"
    return dict(json.loads(path.read_text(encoding="utf-8")))


def report(text: str) -> dict[str, Any]:
    """The report that was printed, valid by its schema; where PROGRAM printed the exit code too, that is right."""
    document, end = json.JSONDecoder().raw_decode(text)
    jsonschema.validate(document, schema())
    errors = [problem for problem in document["problems"] if problem["severity"] == "error"]
    assert text[end:].strip() in ("", "1" if errors else "0")
    return dict(document)


def problems(document: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Problems by id."""
    return {problem["id"]: problem for problem in document["problems"]}


def test_the_emulated_gpu(
    kernel_device: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernel_device != "cpu":
        pytest.skip("a real GPU is in use")
    monkeypatch.delenv("FLASH_ATTN_ROCM_BACKEND")
    assert main(["info", "--json"]) == 0
    document = report(capsys.readouterr().out)
    assert document["hip"]["emulated"]
    gpu = {row["found_by"]: row for row in document["gpus"]}["emulated HIP runtime"]
    assert (gpu["gfx"], gpu["kernels_exist"]) == ("gfx1201", True)
    assert {rule["direction"] for rule in document["policy"]["rules"]} == {"forward", "backward"}
    rows = {row["call"]: row for row in document["runs"]}
    assert rows["forward"]["backend"] == "ck"
    assert rows["forward"]["dtypes"] == ["bf16", "fp16"] == list(rows["forward"]["head_dims"])
    for dtype, dims in rows["forward"]["head_dims"].items():  # each promise is kept
        q = torch.ones(1, 1, 1, int(re.findall(r"\d+", dims)[-1]), dtype=NAMED_DTYPES[dtype])
        assert torch.equal(flash_attn_rocm.flash_attn_func(q, q, q, causal=True), q)
    assert rows["paged KV cache"]["backend"] == "ck"
    assert not {"nothing-runs", "library-not-usable", "kernels-damaged", "bad-variable"} & set(problems(document))


def test_head_dims_are_those_of_attention(kernel_device: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The kernels beside it (for gfx1200 those of backward) serve any head dim up to 256."""
    if kernel_device != "cpu":
        pytest.skip("a real GPU is in use")
    assert main(["info", "--json"]) == 0
    kernels = report(capsys.readouterr().out)["kernels"]["gfx1200"]
    assert kernels["head_dims"] == [64]
    assert "bwd_dot" in kernels["ops"]


def test_the_text_says_the_same(kernel_device: str, capsys: pytest.CaptureFixture[str]) -> None:
    if kernel_device != "cpu":
        pytest.skip("a real GPU is in use")
    assert main(["info"]) == 0
    text = capsys.readouterr().out
    assert "on cpu (gfx1201), forward: ck (bf16 with head dims 1-" in text
    assert "FLASH_ATTN_ROCM_EMULATE=gfx1201" in text
    assert "note: FLASH_ATTN_ROCM_BACKEND=ck overrides the policy of every GPU." in text
    assert "  fix: Unset FLASH_ATTN_ROCM_BACKEND" in text


@pytest.mark.parametrize(
    ("variables", "name", "problem"),
    [
        ({"FLASH_ATTN_ROCM_EMULATE": "gfx9999"}, "bad-variable", "GPU 'gfx9999' is not supported; supported: "),
        ({"FLASH_ATTN_ROCM_EMULATE": ","}, "bad-variable", "is ',' and names no GPU"),
        ({"FLASH_ATTN_ROCM_CHECK_VALUES": "maybe"}, "bad-variable", "is 'maybe'; expected 0 or 1"),
        ({"FLASH_ATTN_ROCM_BACKEND": "rocm"}, "nothing-runs", "FLASH_ATTN_ROCM_BACKEND is 'rocm'; allowed: ck; "),
        ({"FLASH_ATTN_ROCM_POLICY": "/" + "x" * 300}, "policy-file", "cannot be read: File name too long"),
        ({"FLASH_ATTN_ROCM_POLICY": "/"}, "policy-file", "policy file /: cannot be read: Is a directory"),
    ],
)
def test_one_mistake_is_one_error(run_fake: RunFake, variables: dict[str, str], name: str, problem: str) -> None:
    document = report(run_fake(PROGRAM, **variables).stdout)
    (error,) = [found for found in document["problems"] if found["severity"] == "error"]
    assert error["id"] == name
    assert problem in error["problem"]


def test_a_policy_file_that_is_not_there(run_fake: RunFake, user_file: Path) -> None:
    """Only one that a variable names is missed."""
    document = report(run_fake(PROGRAM).stdout)
    problem = problems(document)["policy-file"]
    assert (problem["severity"], str(user_file) in problem["problem"]) == ("warning", True)
    user_file.write_text("schema = 1\n", encoding="utf-8")
    assert "policy-file" not in problems(report(run_fake(PROGRAM).stdout))


def test_kernels_that_lack_a_feature(run_fake: RunFake) -> None:
    document = report(run_fake(PROGRAM, document=manifest([kernel("only", padding="seqlen")])).stdout)
    rows = {row["call"]: row for row in document["runs"]}
    plain = rows["forward, not causal, no window"]
    assert (plain["backend"], plain["dtypes"], plain["head_dims"]) == ("ck", ["bf16"], {"bf16": "64"})
    assert rows["forward, causal or window"]["backend"] is None
    assert rows["forward with softcap"]["backend"] is None
    assert (
        "(profile fake) have none for it: it raises; `./pixiw run build --arch gfx1201 --profile full` builds them"
        in (rows["forward with softcap"]["reason"])
    )
    assert rows["backward"]["backend"] == "sdpa"


def test_missing_kernels(run_fake: RunFake, tmp_path: Path) -> None:
    document = report(run_fake(PROGRAM, FLASH_ATTN_ROCM_KERNELS=str(tmp_path)).stdout)
    problem = problems(document)["nothing-runs"]
    assert problem["severity"] == "error"
    assert "cpu: No kernels for GPU 'gfx1201' are installed" in problem["problem"]
    assert problem["fix"].startswith("Install them: conda install flash-attn-rocm-kernels-gfx1201")
    assert document["runs"][0]["backend"] is None


def test_damaged_kernels(run_fake: RunFake) -> None:
    document = report(run_fake(PROGRAM, document=manifest(schema=9)).stdout)
    problem = problems(document)["kernels-damaged"]
    assert "schema is 9; expected 1" in problem["problem"]
    assert "--force-reinstall flash-attn-rocm-kernels-gfx1201" in problem["fix"]


def test_an_unusable_hip_runtime(run_fake: RunFake) -> None:
    document = report(run_fake(PROGRAM, FLASH_ATTN_ROCM_HIP_LIBRARY="/nowhere/libamdhip64.so").stdout)
    problem = problems(document)["hip-runtime-not-usable"]
    assert "/nowhere/libamdhip64.so" in problem["problem"]
    assert "FLASH_ATTN_ROCM_HIP_LIBRARY" in problem["fix"]


def test_an_absent_library(run_fake: RunFake) -> None:
    document = report(run_fake(PROGRAM, FLASH_ATTN_ROCM_LIBRARY="/nowhere/libflash_attn_rocm.so").stdout)
    problem = problems(document)["library-not-usable"]
    assert "host library /nowhere/libflash_attn_rocm.so: no such file" in problem["problem"]
    assert "--force-reinstall flash-attn-rocm" in problem["fix"]


def test_two_runtimes_in_the_process(run_fake: RunFake, fake_hip: Path, tmp_path: Path) -> None:
    """Another runtime than the one that the library uses was loaded before."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "libamdhip64.so.7").write_bytes(fake_hip.read_bytes())
    files = [str(tmp_path / name / "libamdhip64.so.7") for name in ("one", "two")]
    run = run_fake(
        f"import ctypes; ctypes.CDLL({files[1]!r})\n{PROGRAM}",
        FLASH_ATTN_ROCM_HIP_LIBRARY=files[0],
        LD_LIBRARY_PATH=str(tmp_path / "two"),
    )
    document = report(run.stdout)
    problem = problems(document)["two-runtimes-loaded"]
    assert all(file in problem["problem"] for file in files)
    assert document["hip"]["loaded"]["libamdhip64"] == files
    assert {"path": files[1], "where": "LD_LIBRARY_PATH"} in document["hip"]["installed"]


def test_a_malformed_policy_file(run_fake: RunFake, user_file: Path) -> None:
    user_file.write_text("schema = 1\n[gfx1201.forward]\nbackend = 'rocm'\nevidence = ''\n", encoding="utf-8")
    document = report(run_fake(PROGRAM).stdout)
    problem = problems(document)["policy-file"]
    assert f"{user_file}, line 3: gfx1201.forward.backend is 'rocm'; allowed: ck, sdpa" in problem["problem"]
    assert document["policy"]["user_file_exists"]


def test_the_users_policy_is_shown(run_fake: RunFake, user_file: Path) -> None:
    user_file.write_text(
        'schema = 1\n[gfx1201.backward]\nbackend = "sdpa"\nevidence = "measured on my card"\n', encoding="utf-8"
    )
    document = report(run_fake(PROGRAM).stdout)
    (rule,) = [rule for rule in document["policy"]["rules"] if rule["direction"] == "backward"]
    assert (rule["backend"], rule["evidence"], rule["source"]) == (
        "sdpa", "measured on my card", f"user file {user_file}",
    )  # fmt: skip
    rows = {row["call"]: row for row in document["runs"]}
    assert rows["backward"]["reason"] == f"user file {user_file} for gfx1201: backward = sdpa (measured on my card)"


def test_conda_packages_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "conda-meta").mkdir()
    for name in ("flash-attn-rocm-0.1.0-h1_0", "flash-attn-rocm-kernels-gfx1201-0.1.0-ci_h2_0", "python-3.11.7-h3_0"):
        (tmp_path / "conda-meta" / f"{name}.json").touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert main(["info", "--json"]) == 0
    found = {k: v for k, v in report(capsys.readouterr().out)["packages"].items() if k.startswith("conda package")}
    assert found == {
        "conda package flash-attn-rocm": "0.1.0 h1_0",
        "conda package flash-attn-rocm-kernels-gfx1201": "0.1.0 ci_h2_0",
    }


def test_the_schema_is_printed_and_explains_every_part(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--schema"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == schema()
    jsonschema.validators.validator_for(printed).check_schema(printed)
    assert all(part.get("description") or "const" in part for part in printed["properties"].values())


@pytest.mark.parametrize(("forced", "kernels"), [(None, False), ("ck", True), ("sdpa", False)])
def test_the_backend_variable_overrides_the_users_policy_backward(
    kernel_device: str, user_file: Path, forced: str | None, kernels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernel_device != "cpu":
        pytest.skip("a real GPU is in use")
    user_file.write_text('schema = 1\n[gfx1201.backward]\nbackend = "sdpa"\nevidence = ""\n', encoding="utf-8")
    backends._backward_kernels.cache_clear()
    if forced is None:
        monkeypatch.delenv("FLASH_ATTN_ROCM_BACKEND")
    else:
        monkeypatch.setenv("FLASH_ATTN_ROCM_BACKEND", forced)
    assert (backends.backward_kernels("cpu", None) is not None) == kernels
    backends._backward_kernels.cache_clear()
