"""Compile one kernel twice, from two places, and compare the code objects: rebuilds must be bit-identical."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from ck.plan import Unit
from ck.render import render_unit
from ck.source import CkSource
from flash_attn_rocm.archs import Arch
from scripts.buildlib.cache import hash_file
from scripts.buildlib.compile_flags import device_flags, path_flags
from scripts.buildlib.errors import BuildError, CommandError
from scripts.buildlib.jobs import estimate_cpu_s
from scripts.buildlib.kernels import find_includes
from scripts.buildlib.toolchains.layout import Toolchain


def smallest_unit(units: Iterable[Unit]) -> Unit:
    """The cheapest single kernel of CK's in these units, as a unit of its own."""
    singles = [replace(unit, specs=(spec,)) for unit in units for spec in unit.specs if spec.tile is not None]
    return min(singles, key=estimate_cpu_s)


def check_reproducible(arch: Arch, unit: Unit, toolchain: Toolchain, ck: CkSource) -> str:
    """The sha256 that both compiles gave.

    Sources, headers and outputs are in two directories whose paths differ in length, and both compiles run at once.

    Raises:
        CommandError: a compile failed.
        BuildError: the code objects differ.
    """
    with tempfile.TemporaryDirectory() as scratch:
        places = [Path(scratch) / "a", Path(scratch) / "another place"]
        includes = find_includes(arch, ck, Path(scratch))
        commands = [_prepare(place, arch, unit, toolchain, includes) for place in places]
        running = [
            subprocess.Popen(command, cwd=place, stderr=subprocess.PIPE, text=True)
            for command, place in zip(commands, places, strict=True)
        ]
        messages = [process.communicate()[1] for process in running]
        for command, process, text in zip(commands, running, messages, strict=True):
            if process.returncode:
                raise CommandError(f"compiling {unit.name}", " ".join(command), process.returncode, text)
        digests = [hash_file(place / unit.object_name) for place in places]
    if digests[0] != digests[1]:
        raise BuildError(
            f"{unit.name} compiled in two directories gave two code objects, sha256 {digests[0]} and {digests[1]}; "
            "a path or time got into them: compare the flags in scripts/buildlib/compile_flags.py"
        )
    return digests[0]


def _prepare(place: Path, arch: Arch, unit: Unit, toolchain: Toolchain, includes: Mapping[str, Path]) -> list[str]:
    """Copy what is compiled into `place`; the command that compiles it there."""
    copies = {name: place / name for name in includes}
    for name, directory in includes.items():
        shutil.copytree(directory, copies[name])
    source = place / unit.source_name
    source.write_text(render_unit(unit), encoding="utf-8")
    flags = [*device_flags(arch), *path_flags(toolchain, copies, place)]
    return [str(toolchain.clangxx), *flags, str(source), "-o", str(place / unit.object_name)]
