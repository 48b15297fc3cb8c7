"""The runner of the suite: it counts what ran, and fails when fewer tests ran than declared."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

from scripts.test import missing_tests

ROOT = Path(__file__).resolve().parents[2]

SAMPLE = """
import pytest
def test_passes(): pass
def test_fails(): assert 1 == 2
@pytest.mark.skip(reason="no such card")
def test_skips(): pass
@pytest.fixture
def broken(): raise RuntimeError("setup")
def test_errors(broken): pass
"""


def test_fewer_tests_than_declared_is_a_problem() -> None:
    assert missing_tests(Counter(unit=3, isa=10), {"unit": 4, "isa": 10}) == [
        "tests/unit: 3 tests ran, at least 4 are declared in tests/floor.toml"
    ]


def test_a_folder_that_ran_nothing_is_a_problem() -> None:
    assert len(missing_tests(Counter(), {"kernels": 1})) == 1


def test_counts_and_exit_code_of_a_run(tmp_path: Path) -> None:
    sample = tmp_path / "test_sample.py"
    sample.write_text(SAMPLE)
    counts = tmp_path / "counts.txt"
    result = subprocess.run(
        [sys.executable, ROOT / "scripts" / "test.py", "--counts", counts, "-p", "no:cacheprovider", sample],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 1
    assert counts.read_text() == "1 passed, 2 failed, 1 skipped\n"


def test_every_test_folder_declares_a_floor() -> None:
    floor = tomllib.loads((ROOT / "tests" / "floor.toml").read_text())
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and list(path.glob("test_*.py"))}
    assert set(floor) == folders
