"""The ROCm runtimes on this machine: those that this process has loaded, and those that it could find."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

# Both must come from one ROCm: HIP is built on HSA, and either of two versions in one process breaks the other.
LIBRARIES = ("libamdhip64", "libhsa-runtime64")
_WINDOWS = sys.platform == "win32"
MAPS = Path("/proc/self/maps")


@dataclass(frozen=True)
class Runtime:
    """One HIP runtime that is installed, and what names its directory."""

    path: str
    where: str


def loaded_libraries(maps: Path = MAPS) -> dict[str, tuple[str, ...]] | None:
    """The files behind each of LIBRARIES in this process; None where the system does not list them (not Linux)."""
    if not maps.exists():
        return None
    files = {
        line.split(maxsplit=5)[5].strip().removesuffix(" (deleted)")
        for line in maps.read_text(encoding="utf-8", errors="backslashreplace").splitlines()
        if "/" in line
    }
    return {
        name: tuple(sorted(file for file in files if file.rpartition("/")[2].startswith(f"{name}.so")))
        for name in LIBRARIES
    }


def _directories(environment: Mapping[str, str], torch_directory: Path) -> Iterator[tuple[str, Path]]:
    """Where a HIP runtime can be, in the order in which the host library looks; then what the loader would look at."""
    below = "bin" if _WINDOWS else "lib"
    yield "beside torch", torch_directory / "lib"
    for package in sorted(torch_directory.parent.glob("_rocm_sdk_*")):
        yield f"wheel {package.name}", package / below
    yield "this environment", Path(sys.prefix) / ("Library/bin" if _WINDOWS else "lib")
    for name in ("ROCM_PATH", "HIP_PATH", "ROCM_HOME"):
        if value := environment.get(name):
            yield name, Path(value) / below
    for part in environment.get("PATH" if _WINDOWS else "LD_LIBRARY_PATH", "").split(os.pathsep):
        if part:
            yield "PATH" if _WINDOWS else "LD_LIBRARY_PATH", Path(part)
    for prefix in sorted(Path("/opt").glob("rocm*")):
        yield str(prefix), prefix / "lib"


def installed_runtimes(
    environment: Mapping[str, str], torch_directory: Path, without: Iterable[Path] = ()
) -> list[Runtime]:
    """Each HIP runtime once, by its real file; those in the directories `without` (the emulated one) are left out."""
    skipped = {path.resolve() for path in without}
    found: dict[Path, Runtime] = {}
    pattern = "amdhip64*.dll" if _WINDOWS else "libamdhip64.so*"
    for where, directory in _directories(environment, torch_directory):
        if directory.resolve() in skipped or not directory.is_dir():
            continue
        for file in sorted(directory.glob(pattern)):
            found.setdefault(file.resolve(), Runtime(str(file), where))
    return list(found.values())
