"""Finding and running other programs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts.buildlib.commands import find_program, run_command
from scripts.buildlib.errors import BuildError, CommandError
from tests.unit.fake_toolchain import write_script

posix = pytest.mark.skipif(sys.platform == "win32", reason="the stand-ins are shell scripts")


@posix
def test_the_environment_of_python_comes_before_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("environment", "path"):
        write_script(tmp_path / folder / "tool", "#!/bin/sh\n")
    write_script(tmp_path / "path" / "other", "#!/bin/sh\n")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "environment" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    assert find_program("tool") == tmp_path / "environment" / "tool"
    assert find_program("other") == tmp_path / "path" / "other"
    assert find_program(str(tmp_path / "path" / "tool")) == tmp_path / "path" / "tool"


@pytest.mark.parametrize(("hint", "advice"), [("", "install the Python package tool"), ("ask me", "ask me")])
def test_a_missing_program_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hint: str, advice: str
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BuildError, match=f"tool is neither in .* nor on PATH; {advice}"):
        find_program("tool", hint)


def test_a_failure_shows_command_code_and_output() -> None:
    with pytest.raises(CommandError, match=r"the thing failed \(exit code 3\)(.|\n)*why not"):
        run_command("the thing", [sys.executable, "-c", "import sys; print('why not', file=sys.stderr); sys.exit(3)"])
