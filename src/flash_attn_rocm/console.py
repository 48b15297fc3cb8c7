"""The console that every command, of the package and of the build, prints tables and progress on."""

from __future__ import annotations

import sys

from rich.console import Console

# More than any table needs: rich makes a table no wider than its cells.
LOG_WIDTH = 10_000


def make_console(*, highlight: bool = True) -> Console:
    """Standard output: as wide as the terminal; in a pipe or a file as wide as anything is, so that nothing is cut.

    There rich itself would take 80 columns, or those of COLUMNS, which some CI systems set.
    """
    return Console(width=None if sys.stdout.isatty() else LOG_WIDTH, highlight=highlight)
