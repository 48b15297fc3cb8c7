"""The `flash-attn-rocm` program: one module per command."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence

from flash_attn_rocm import __version__
from flash_attn_rocm.cli import bench, info, tune, verify
from flash_attn_rocm.errors import FlashAttnRocmError

EXIT_BAD_REQUEST = 2


def build_parser() -> argparse.ArgumentParser:
    """The parser with every command; each sets `run`, a function from parsed arguments to an exit code."""
    parser = argparse.ArgumentParser(
        prog="flash-attn-rocm", description="FlashAttention-2 for AMD GPUs: report, check and measure."
    )
    parser.add_argument("--version", action="version", version=f"flash-attn-rocm {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in (info, verify, bench, tune):
        module.add_parser(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 is success, 1 is a failed check, 2 a request that cannot be carried out."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # paths may hold bytes that are not text
            stream.reconfigure(errors="backslashreplace")
    arguments = build_parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except FlashAttnRocmError as error:
        print(f"flash-attn-rocm: {error}", file=sys.stderr)
        return EXIT_BAD_REQUEST
