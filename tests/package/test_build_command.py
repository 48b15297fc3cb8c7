"""The command line of scripts/build.py: bad requests end with exit code 2 and say what is allowed."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _build(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "build.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--arch", "gfx0"], "'gfx0'; allowed: native, all, gfx1100, gfx1101"),
        (["--profile", "tiny"], "invalid choice: 'tiny'"),
        (["--stage", "host"], "--stage host without --into; allowed: toolchain"),
        (["--stage", "verify", "--into", "/tmp/x"], "--stage verify with --into; allowed: kernels, host, emulator"),
    ],
)
def test_bad_request(arguments: list[str], message: str) -> None:
    done = _build(*arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_every_profile_of_the_table_is_accepted() -> None:
    table = tomllib.loads((ROOT / "ck" / "variants.toml").read_text(encoding="utf-8"))
    done = _build("--profile", "tiny")
    assert all(f"'{name}'" in done.stderr for name in table["profiles"])


def test_failure_names_the_command_to_run_again() -> None:
    assert _build("--arch", "gfx0").stderr.splitlines()[-1] == "Run it again: ./pixiw run build --arch gfx0"
