"""Fetch the pinned Composable Kernel source, unless CK_ROOT or CK_SOURCE chooses another, and the golden kernels.

Prints which and where.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from ck.errors import CkError  # noqa: E402
from ck.golden import fetch_golden  # noqa: E402
from ck.source import choose_source  # noqa: E402
from scripts.buildlib.cache_root import cache_root  # noqa: E402


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    try:
        source = choose_source(cache_root())
        golden = fetch_golden(cache_root())
    except CkError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(f"Composable Kernel: {source.label} ({source.why})\n{source.root}\nGolden kernels: {golden}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
