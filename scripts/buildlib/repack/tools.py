"""Conda packages of the build tools: cmake, ninja and nlohmann_json from wheels, and the machine's C++ compiler."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterable
from importlib.metadata import Distribution
from pathlib import Path

from scripts.buildlib.repack.archive import Repack, staged_files
from scripts.buildlib.repack.distribution import find_distribution

# Top-level directories of a prefix; what a wheel holds below one of these goes there.
_PREFIX_DIRS = ("bin", "include", "share")


def _stage_wheel(distribution: Distribution) -> Iterable[tuple[Path, str]]:
    """The files of a wheel that wraps native files, where a native package would have them."""
    for record in distribution.files or ():
        source = Path(str(distribution.locate_file(record))).resolve()
        tops = [index for index, part in enumerate(record.parts) if part in _PREFIX_DIRS]
        # A console script is Python text that names the environment's interpreter; the program itself is ELF.
        if tops and source.is_file() and not _is_python_script(source):
            yield source, "/".join(record.parts[tops[0] :])


def _is_python_script(path: Path) -> bool:
    with path.open("rb") as stream:
        head = stream.read(64)
    return head.startswith(b"#!") and b"python" in head


def _plan_wheel(package: str) -> Repack | None:
    distribution = find_distribution(package)
    if distribution is None:
        return None
    identity = distribution.read_text("RECORD") or ""
    return Repack(package, distribution.version, identity, (), lambda _: _stage_wheel(distribution))


def _plan_wrapper(package: str, program: str) -> Repack:
    """A package whose program starts the machine's own, for a Python that has no wheel of it.

    Raises:
        LookupError: the machine has none either.
    """
    found = shutil.which(program)
    if found is None:
        raise LookupError(f"{program} was not found; install it: pip install {package}, or apt-get install {package}")
    told = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"\d+(\.\d+)+", told)

    def stage(staging: Path) -> Iterable[tuple[Path, str]]:
        script = staging / "bin" / program
        script.parent.mkdir(parents=True)
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(found)} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
        return staged_files(staging)

    return Repack(package, version.group() if version else "0", f"{found}\n{told}", (), stage)


def plan_tool(package: str) -> Repack:
    """cmake or ninja."""
    return _plan_wheel(package) or _plan_wrapper(package, package)


def plan_json() -> Repack:
    """The headers of nlohmann_json.

    Raises:
        LookupError: they are not installed.
    """
    if plan := _plan_wheel("nlohmann_json"):
        return plan
    raise LookupError("nlohmann-json is not installed in this Python; install it: pip install nlohmann-json")


def plan_cxx(clangxx: Path) -> Repack:
    """CXX, g++ or else the kernels' clang++ as `gxx_linux-64`, which is what compiler("cxx") asks for.

    It only names the compiler: the C library's headers that go with it cannot be moved into a package.

    Raises:
        LookupError: CXX names no program.
    """
    wanted = os.environ.get("CXX")
    program = shutil.which(wanted) if wanted else shutil.which("g++") or str(clangxx)
    if program is None:
        raise LookupError(f"CXX is {wanted!r}, which is no program; name a C++20 compiler or unset it")
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    version = re.search(r"\d+(\.\d+)+", told)

    def stage(staging: Path) -> Iterable[tuple[Path, str]]:
        script = staging / "etc/conda/activate.d/gxx_linux-64.sh"
        script.parent.mkdir(parents=True)
        script.write_text(f"export CXX={shlex.quote(program)}\n", encoding="utf-8")
        return staged_files(staging)

    return Repack("gxx_linux-64", version.group() if version else "0", f"{program}\n{told}", (), stage)


PLANS: dict[str, Callable[[], Repack]] = {
    "cmake": lambda: plan_tool("cmake"),
    "ninja": lambda: plan_tool("ninja"),
    "nlohmann_json": plan_json,
}
