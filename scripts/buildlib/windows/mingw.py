"""MinGW-w64: the compiler that builds for Windows from Linux, installed from Debian where this is root on Debian."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from scripts.buildlib.commands import run_command
from scripts.buildlib.errors import BuildError

# The POSIX thread model has std::mutex and std::thread; Debian's other one has not (before GCC 13).
COMPILER = "x86_64-w64-mingw32-g++-posix"
PACKAGE = "g++-mingw-w64-x86-64-posix"
OLDEST = 12  # C++20 as the libraries use it


class MingwError(BuildError):
    """There is no MinGW-w64 of the right kind."""


@dataclass(frozen=True)
class Mingw:
    """A compiler for Windows."""

    cxx: Path
    version: str


def install_packages(names: tuple[str, ...], what: str) -> None:
    """Install Debian packages as root.

    Raises:
        MingwError: this is not Debian or not root, or the mirror cannot be reached; says what to install.
    """
    by_hand = f"sudo apt-get install {' '.join(names)}"
    if shutil.which("apt-get") is None:
        raise MingwError(f"{what} is not installed, and this is not Debian. Install your system's package of it")
    if os.geteuid() != 0:
        raise MingwError(f"{what} is not installed, and installing it needs root: {by_hand}")
    command = ["apt-get", "install", "--yes", "--no-install-recommends", *names]
    try:
        run_command("apt-get update", ["apt-get", "update"])
        run_command("apt-get install", command, env={"DEBIAN_FRONTEND": "noninteractive"})
    except BuildError as error:
        raise MingwError(f"{what} could not be installed ({by_hand}): {error}") from error


def find_mingw(may_install: bool = True) -> Mingw:
    """The compiler, installed first where it is missing.

    Raises:
        MingwError: it is missing and cannot be installed, or is too old.
    """
    found = shutil.which(COMPILER)
    if found is None and may_install:
        install_packages((PACKAGE,), f"MinGW-w64 ({COMPILER})")
        found = shutil.which(COMPILER)
    if found is None:
        raise MingwError(f"{COMPILER} is not on PATH: apt-get install {PACKAGE}")
    version = run_command("MinGW-w64", [found, "-dumpversion"]).strip()
    if int(version.split("-")[0].split(".")[0]) < OLDEST:
        raise MingwError(f"{found} is version {version}; needed: {OLDEST} or later")
    return Mingw(Path(found), version)
