"""Run the test suite: all of it, or the paths given; fails when fewer tests run than tests/floor.toml declares.

`--wide` adds the large grids; `--counts FILE` writes the closing line `N passed, N failed, N skipped`.
Everything else is passed to pytest.
"""

from __future__ import annotations

import argparse
import os
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


class Counts:
    """Counts outcomes, one per test: a test whose setup or teardown breaks has failed."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.outcomes[report.nodeid] = "failed"
        elif report.when == "call" or report.skipped:
            self.outcomes.setdefault(report.nodeid, report.outcome)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.outcomes[report.nodeid] = "failed"

    def by_folder(self) -> Counter[str]:
        """Executed (not skipped) tests per folder of tests/."""
        executed = (node for node, outcome in self.outcomes.items() if outcome != "skipped")
        return Counter(node.split("/")[1] if node.count("/") > 1 else "" for node in executed)

    def line(self) -> str:
        """The closing line: `N passed, N failed, N skipped`."""
        total = Counter(self.outcomes.values())
        return f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped"


def missing_tests(executed: Counter[str], floor: dict[str, int]) -> list[str]:
    """One sentence for each folder that ran fewer tests than declared."""
    return [
        f"tests/{folder}: {executed[folder]} tests ran, at least {least} are declared in tests/floor.toml"
        for folder, least in sorted(floor.items())
        if executed[folder] < least
    ]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="pixiw run test", description=__doc__)
    parser.add_argument("--wide", action="store_true", help="add the large grids")
    parser.add_argument("--counts", type=Path, help="write the closing line to this file")
    options, rest = parser.parse_known_args(arguments)

    os.chdir(ROOT)
    whole_suite = not rest
    counts = Counts()
    selection = [] if options.wide else ["-m", "not wide"]
    code = int(pytest.main([*selection, *rest], plugins=[counts]))

    problems = []
    if whole_suite:
        problems = missing_tests(
            counts.by_folder(), tomllib.loads(Path("tests/floor.toml").read_text(encoding="utf-8"))
        )
    for problem in problems:
        print(problem, file=sys.stderr)
    if options.counts:
        options.counts.parent.mkdir(parents=True, exist_ok=True)
        options.counts.write_text(counts.line() + "\n", encoding="utf-8")
    return code or (1 if problems else 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
