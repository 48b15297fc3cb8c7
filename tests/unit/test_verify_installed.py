"""The build's verify: a run that passed without the kernels has not verified them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from scripts.buildlib.errors import BuildError
from scripts.buildlib.verify_installed import run_verify, torch_has_hip
from tests.unit.fake_toolchain import write_script

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the stand-ins are shell scripts")


def install(prefix: Path, backend: str = "ck", gfx: str = "gfx1201", cases: int = 3, code: int = 0) -> Path:
    """A make-believe environment; its program writes down its arguments and this report."""
    report = json.dumps({"backend": backend, "gfx": gfx, "reason": "a test", "cases": [{}] * cases})
    script = (
        f'#!/bin/sh\necho "$@" > {prefix}/arguments\nfor file; do :; done\necho \'{report}\' > "$file"\nexit {code}\n'
    )
    write_script(prefix / "bin" / "flash-attn-rocm", script)
    return prefix


def verify(prefix: Path, emulated: bool = True) -> int:
    return run_verify(prefix, "gfx1201", prefix / "reports", emulated=emulated, say=lambda _: None)


@pytest.mark.parametrize(
    ("emulated", "arguments"),
    [(True, "verify --emulate gfx1201 --json {}/gfx1201-emulated.json"), (False, "verify --json {}/gfx1201.json")],
)
def test_the_number_of_cases_is_returned(tmp_path: Path, emulated: bool, arguments: str) -> None:
    assert verify(install(tmp_path), emulated) == 3
    assert (tmp_path / "arguments").read_text().strip() == arguments.format(tmp_path / "reports")


@pytest.mark.parametrize(
    ("report", "message"),
    [
        ({"backend": "sdpa"}, "backend sdpa of gfx1201"),
        ({"gfx": "gfx942"}, "ck of gfx942"),
        ({"cases": 0}, "verified 0 cases"),
        ({"code": 1}, "ended with exit code 1"),
    ],
)
def test_what_did_not_verify_the_kernels_fails(tmp_path: Path, report: dict[str, object], message: str) -> None:
    with pytest.raises(BuildError, match=message):
        verify(install(tmp_path, **report))


@pytest.mark.parametrize(("code", "answer"), [(0, True), (1, False)])
def test_torch_is_asked_for_hip(tmp_path: Path, code: int, answer: bool) -> None:
    write_script(tmp_path / "bin" / "python", f"#!/bin/sh\nexit {code}\n")
    assert torch_has_hip(tmp_path) is answer
