"""Print every place a compiler for the kernels may be, with versions, the one chosen, and why each other one is not."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.markup import escape
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from flash_attn_rocm.console import make_console  # noqa: E402
from scripts.buildlib.errors import BuildError  # noqa: E402
from scripts.buildlib.request import choose_archs  # noqa: E402
from scripts.buildlib.toolchain import Candidate, choose, list_candidates  # noqa: E402


def make_table(candidates: list[Candidate]) -> Table:
    """One row per candidate; the winner is the first that works."""
    table = Table(title="Toolchains for the kernels", title_justify="left", show_lines=True)
    for heading in ("", "from", "where", "versions", "verdict"):
        table.add_column(heading, overflow="fold", max_width=60)
    winner = next((candidate for candidate in candidates if candidate.toolchain), None)
    for candidate in candidates:
        if candidate is winner:
            mark, verdict = "→", "chosen: compiled a test kernel"
        elif candidate.toolchain and winner:
            mark, verdict = "", f"works, but {winner.origin} comes first"
        else:
            mark, verdict = "", candidate.reason + (f"\n{candidate.fix}" if candidate.fix else "")
        versions = "\n".join(f"{name} {version}" for name, version in candidate.versions.items())
        table.add_row(*(escape(cell) for cell in (mark, candidate.origin, candidate.where, versions, verdict)))
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", help="GPUs to compile for, as in GPU_ARCHS (default: all this project knows)")
    parser.add_argument("--no-install", action="store_true", help="neither install nor download anything")
    options = parser.parse_args()
    try:
        gfxs = [arch.gfx for arch in choose_archs(options.arch)]
        candidates = list(list_candidates(gfxs, may_install=not options.no_install))
        make_console().print(make_table(candidates))
        choose(candidates)
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
