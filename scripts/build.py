"""Compile the kernels, build the conda packages, install them into build/env and verify them there.

The recipe's build scripts call this too: with --into, one stage builds its files into a package's prefix.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from ck.errors import CkError  # noqa: E402
from ck.variants import load_variants  # noqa: E402
from scripts.buildlib.errors import BuildError  # noqa: E402
from scripts.buildlib.output_files import FILE_STAGES, build_files  # noqa: E402

STAGES = ("toolchain", "ck", "kernels", "channel", "packages", "install", "verify")


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", help="GPUs to build for, as in GPU_ARCHS; all, native (default: all)")
    parser.add_argument(
        "--profile",
        choices=tuple(load_variants().profiles),
        default="ci",
        help="which kernels (default: %(default)s)",
    )
    parser.add_argument(
        "--channel",
        action="append",
        default=[],
        help="conda channel to take python, pytorch and so on from, instead of repacking them from this machine",
    )
    parser.add_argument(
        "--stage",
        choices=(*STAGES, *(stage for stage in FILE_STAGES if stage not in STAGES)),
        default=STAGES[-1],
        help="the last stage to run; with --into, the files to build",
    )
    parser.add_argument("--into", type=Path, help="only build one package's files, into this prefix (recipe/build.sh)")
    options = parser.parse_args(arguments)
    if options.stage not in (FILE_STAGES if options.into else STAGES):
        allowed = ", ".join(FILE_STAGES if options.into else STAGES)
        parser.error(f"--stage {options.stage} {'with' if options.into else 'without'} --into; allowed: {allowed}")
    return options


def main(arguments: list[str]) -> int:
    into = False
    try:
        options = parse(arguments)
        into = options.into is not None
        if options.into:
            build_files(options.stage, options.into, options.arch, options.profile)
        else:
            # Only here: a package's build environment has neither py-rattler nor py-rattler-build.
            from scripts.buildlib.pipeline import run_pipeline

            run_pipeline(options.arch, options.profile, options.channel, STAGES[: STAGES.index(options.stage) + 1])
    except (BuildError, CkError) as error:
        print(f"error: {error}", file=sys.stderr)
        command = [sys.executable, *sys.argv] if into else ["./pixiw", "run", "build", *arguments]
        print(f"Run it again: {shlex.join(command)}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    try:
        code = main(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    sys.stdout.flush()
    sys.stderr.flush()
    # Without the interpreter's shutdown: threads of py-rattler-build can crash in it (see buildlib/conda_calls.py).
    os._exit(code)
