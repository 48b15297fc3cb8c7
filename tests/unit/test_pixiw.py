"""pixiw makes its environment once, anew when what it depends on changes, and installs nothing unlocked silently.

A stand-in for Python records what pixiw asks of it, so nothing is downloaded.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Answers like an interpreter would; `-m venv DIR` copies the stand-in to DIR/bin/python: pip calls land here too.
STAND_IN = """#!/bin/sh
printf '%s|' "$@" >>"$LOG"; printf '\\n' >>"$LOG"
case "$*" in
*_base_executable*) printf '%s\\n' "$STAND_IN" ;;
*hashlib*) shift 2; printf 'stamp %s %s\\n' "$VERSION" "$(cat "$@" 2>/dev/null | cksum)" ;;
*"import sys, venv"*) exit "${UNUSABLE:-0}" ;;
--version) echo "Python $VERSION" ;;
"-m venv "*) mkdir -p "$3/bin"; cp "$STAND_IN" "$3/bin/python" ;;
*torch.txt*) printf '%s\\n' "$TORCH_ANSWER"; [ -z "$TORCH_ANSWER" ] ;;
esac
"""


@dataclass
class Checkout:
    """A copy of pixiw and its locks, with the stand-in as the only Python."""

    root: Path
    environment: dict[str, str]

    def run(self, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run `./pixiw run lint`."""
        return subprocess.run(
            [self.root / "pixiw", "run", "lint"],
            env=self.environment | environment,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def calls(self) -> list[list[str]]:
        """Arguments of every call of the stand-in since the last time, then forget them."""
        log = Path(self.environment["LOG"])
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return [line.split("|")[:-1] for line in lines]


def installs(calls: list[list[str]]) -> list[str]:
    """What pip was asked to install, one string a call."""
    return [" ".join(call[call.index("--quiet") + 1 :]) for call in calls if "--quiet" in call]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    root = tmp_path / "a checkout é"
    (root / "requirements").mkdir(parents=True)
    (root / "scripts").mkdir()
    shutil.copy(ROOT / "pixiw", root)
    for name in ("dev.txt", "torch.txt"):
        shutil.copy(ROOT / "requirements" / name, root / "requirements")
    stand_in = tmp_path / "stand in"
    stand_in.write_text(STAND_IN)
    stand_in.chmod(0o755)
    environment = {
        "PATH": "/usr/bin:/bin",
        "PIXIW_NO_PIXI": "1",
        "PIXIW_PYTHON": str(stand_in),
        "STAND_IN": str(stand_in),
        "LOG": str(tmp_path / "log"),
        "VERSION": "3.11.7",
        "TORCH_ANSWER": "",
    }
    return Checkout(root, environment)


def test_first_run_installs_only_what_is_locked(checkout: Checkout) -> None:
    """The path has a space and a letter outside ASCII."""
    result = checkout.run()
    assert result.returncode == 0, result.stderr
    calls = checkout.calls()
    assert installs(calls) == [
        f"--require-hashes -r {checkout.root}/requirements/dev.txt",
        f"--require-hashes --no-deps -r {checkout.root}/requirements/torch.txt",
    ]
    assert calls[-1] == [f"{checkout.root}/scripts/run_task.py", "lint"]


def test_second_run_installs_nothing(checkout: Checkout) -> None:
    checkout.run()
    checkout.calls()
    checkout.run()
    assert installs(checkout.calls()) == []


@pytest.mark.parametrize("changed", ["dev.txt", "torch.txt"])
def test_a_changed_lock_makes_the_environment_anew(checkout: Checkout, changed: str) -> None:
    checkout.run()
    checkout.calls()
    with (checkout.root / "requirements" / changed).open("a") as lock:
        lock.write("# changed\n")
    checkout.run()
    assert len(installs(checkout.calls())) == 2


def test_another_python_makes_the_environment_anew(checkout: Checkout) -> None:
    checkout.run()
    checkout.calls()
    checkout.run(VERSION="3.13.5")
    assert len(installs(checkout.calls())) == 2


def test_an_interrupted_installation_starts_over(checkout: Checkout) -> None:
    assert checkout.run(TORCH_ANSWER="Connection refused").returncode != 0
    checkout.calls()
    assert checkout.run().returncode == 0
    assert len(installs(checkout.calls())) == 2


def test_no_cpu_build_of_torch_takes_the_other_and_says_so(checkout: Checkout) -> None:
    result = checkout.run(TORCH_ANSWER="ERROR: No matching distribution found for torch==2.13.0+cpu")
    assert result.returncode == 0
    assert installs(checkout.calls())[-1] == "torch==2.13.0"
    assert "CUDA, several GB" in result.stderr


@pytest.mark.parametrize("answer", ["Connection refused", "THESE PACKAGES DO NOT MATCH THE HASHES"])
def test_any_other_failure_of_torch_ends_the_run(checkout: Checkout, answer: str) -> None:
    """A network error or a wrong hash must not lead to an installation without hashes."""
    result = checkout.run(TORCH_ANSWER=answer)
    assert result.returncode != 0
    assert answer in result.stderr
    assert "torch==2.13.0" not in installs(checkout.calls())


def test_an_unusable_python_is_refused_by_name(checkout: Checkout) -> None:
    result = checkout.run(UNUSABLE="1")
    assert result.returncode == 2
    assert checkout.environment["PIXIW_PYTHON"] in result.stderr
    assert installs(checkout.calls()) == []
