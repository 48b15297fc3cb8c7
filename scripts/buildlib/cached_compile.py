"""Compiler launcher for CMake: take an object file from the compile cache, or compile it and put it there.

Usage: cached_compile.py --cache DIR --identity TEXT [--root NAME=PATH]... -- COMPILER ARGUMENT...

A cached object is found by the source's content, the flags, the compiler's identity and the content of every header
that was read, so another checkout or a build from nothing finds it too. Paths below a root count relative to it. What
is no compile of one file with a depfile just runs.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from scripts.buildlib.cache import (  # noqa: E402
    CompileCache,
    Roots,
    escape_depfile,
    hash_file,
    make_key,
    parse_depfile,
    replacing,
)

_PLACES = ("-c", "-o", "-MF", "-MT")  # options whose values say where things are, not what the object becomes
# Options whose values are paths and follow without a blank.
_JOINED = ("-I", "-L", "-B", "-ffile-prefix-map=")


@dataclass(frozen=True)
class Compile:
    """One compile: `flags` is the rest of the command, with paths as the roots name them."""

    source: Path
    output: Path
    depfile: Path
    target: str
    flags: tuple[str, ...]


def parse_compile(arguments: Sequence[str], roots: Roots) -> Compile | None:
    """What a compiler's arguments ask for; None unless they compile one file to one object and write a depfile."""
    places: dict[str, str] = {}
    flags: list[str] = []
    waiting = iter(arguments)
    for argument in waiting:
        if argument in _PLACES:
            if argument in places:
                return None
            places[argument] = next(waiting, "")
        elif option := next((option for option in _JOINED if argument.startswith(f"{option}/")), None):
            flags.append(option + roots.relative(argument[len(option) :]))
        else:
            flags.append(roots.relative(argument) if argument.startswith("/") else argument)
    if set(places) != set(_PLACES) or "-MD" not in flags:
        return None
    return Compile(Path(places["-c"]), Path(places["-o"]), Path(places["-MF"]), places["-MT"], tuple(flags))


def _copy(source: Path, target: Path) -> None:
    with replacing(target) as temporary:
        shutil.copyfile(source, temporary)


def run_cached(command: Sequence[str], identity: str, cache: CompileCache, roots: Roots) -> int:
    """Run a compiler, or do without it; the exit code is the compiler's."""
    job = parse_compile(command[1:], roots)
    if job is None:
        return subprocess.run(command, check=False).returncode
    key = make_key({"source": hash_file(job.source), "flags": list(job.flags), "identity": identity})
    if hit := cache.find(key, roots):
        _copy(hit.path, job.output)
        names = [escape_depfile(name) for name in (job.target, str(job.source), *map(str, hit.headers))]
        job.depfile.write_text(f"{names[0]}: {' '.join(names[1:])}\n", encoding="utf-8")
        return 0
    job.output.parent.mkdir(parents=True, exist_ok=True)
    stamp = job.output.with_name(f"{job.output.name}.started")
    stamp.touch()  # file systems round times, so the clock would be too late
    started_ns = stamp.stat().st_mtime_ns
    stamp.unlink()
    before = os.times()
    code = subprocess.run(command, check=False).returncode
    if code:
        return code
    after = os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    read = [Path(name) for name in parse_depfile(job.depfile.read_text(encoding="utf-8"))]
    # A file that was written meanwhile may be hashed as another than the compiler read.
    if all(path.stat().st_mtime_ns < started_ns for path in (job.source, *read)):
        headers = [str(path.absolute()) for path in read if path.absolute() != job.source.absolute()]
        with contextlib.suppress(OSError):  # a cache that cannot be written only costs time
            cache.store(key, roots, headers, job.output, cpu_s)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--identity", required=True)
    parser.add_argument("--root", action="append", default=[], help="NAME=PATH")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    roots = Roots({name: Path(path) for name, _, path in (text.partition("=") for text in options.root)})
    return run_cached(options.command, options.identity, CompileCache(options.cache), roots)


if __name__ == "__main__":
    sys.exit(main())
