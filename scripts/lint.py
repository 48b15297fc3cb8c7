"""Check style and types of the whole project: ruff (rules and format) and mypy --strict."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHECKS: tuple[tuple[str, ...], ...] = (
    ("ruff", "check", "."),
    ("ruff", "format", "--check", "."),
    ("mypy",),
)


def main() -> int:
    failed = []
    for check in CHECKS:
        print("+", *check, flush=True)
        if subprocess.call([sys.executable, "-m", *check], cwd=ROOT):
            failed.append(check)
    for check in failed:
        print("failed:", *check, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
