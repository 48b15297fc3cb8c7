"""The console that tables and progress are printed on."""

from __future__ import annotations

import sys

from rich.console import Console

# Without a terminal rich assumes 80 columns and would break kernel names and paths.
LOG_WIDTH = 160


def make_console() -> Console:
    """Standard output: as wide as the terminal, or wide enough for any table in a log."""
    return Console(width=None if sys.stdout.isatty() else LOG_WIDTH)
