"""Build for Windows from Linux with MinGW-w64: flash_attn_rocm.dll, then the conda packages in dist/win-64."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from scripts.buildlib.cache_root import cache_root  # noqa: E402
from scripts.buildlib.errors import BuildError  # noqa: E402
from scripts.buildlib.windows.host_library import build_host_library  # noqa: E402
from scripts.buildlib.windows.mingw import find_mingw  # noqa: E402
from scripts.buildlib.windows.pe import read_library  # noqa: E402

WORK = ROOT / "build" / "windows"


def build() -> Path:
    """Build the DLL, say what it needs, and return it.

    Raises:
        BuildError: a part is missing and cannot be installed, or does not build.
    """
    started = time.monotonic()
    mingw = find_mingw()
    print(f"MinGW-w64 {mingw.version} ({mingw.cxx})", flush=True)
    library = build_host_library(mingw, cache_root(), WORK / "host", WORK / "lib")
    needed = ", ".join(sorted(read_library(library).imports))
    size_kb, seconds = library.stat().st_size / 1000, time.monotonic() - started
    print(f"{library.relative_to(ROOT)}: {size_kb:.0f} kB, needs {needed} ({seconds:.0f} s)", flush=True)
    return library


def build_packages() -> None:
    """Build the packages for win-64 and say how large they are.

    Raises:
        BuildError: one does not build.
    """
    # Only here: running what was built needs no rattler-build.
    from scripts.buildlib.windows.packages import build_windows_packages

    started = time.monotonic()
    for package in build_windows_packages(cache_root(), lambda _: None):
        size_kb, seconds = package.stat().st_size / 1000, time.monotonic() - started
        print(f"{package.relative_to(ROOT)}: {size_kb:.0f} kB ({seconds:.0f} s)", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library-only", action="store_true", help="make no packages")
    options = parser.parse_args()
    try:
        build()
        if not options.library_only:
            build_packages()
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        print("Run it again: ./pixiw run build-windows", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Without the interpreter's shutdown: threads of py-rattler-build can crash in it (see buildlib/conda_calls.py).
    os._exit(code)
