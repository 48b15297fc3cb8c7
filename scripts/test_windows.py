"""Run the Windows build under Wine: torch for Windows, the cross-built library, kernels on the emulated GPU.

Builds what it needs first, and installs MinGW-w64 and Wine with apt-get where this is root on Debian.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from scripts.build_windows import build  # noqa: E402
from scripts.buildlib.cache_root import cache_root  # noqa: E402
from scripts.buildlib.errors import BuildError  # noqa: E402
from scripts.buildlib.toolchain import find_toolchain  # noqa: E402
from scripts.buildlib.windows.emulator import build_windows_emulator  # noqa: E402
from scripts.buildlib.windows.wine import WindowsPython, make_windows_python, windows_path  # noqa: E402

GPU = "gfx1201"
WORK = ROOT / "build" / "windows"
CHECKS = ROOT / "tests" / "windows" / "checks.py"
NAMES = ("decoy", "hip_path", "loaded_runtime", "attention")
_LONGEST_S = 1200.0


def make_directory(kernels: Path) -> Path:
    """The directory that the checks work in: kernels and emulator; made anew.

    Raises:
        BuildError: there are no kernels, or the emulator does not build.
    """
    if not (kernels / GPU / "kernels.json").exists():
        raise BuildError(f"{kernels} has no kernels of {GPU}; run ./pixiw run build first, or name others by --kernels")
    run = WORK / "run"
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(kernels / GPU, run / "kernels" / GPU)
    toolchain = find_toolchain([GPU])
    if toolchain.llvm_objdump is None:
        raise BuildError(f"the toolchain {toolchain.origin} has no llvm-objdump, which the emulated GPU is built with")
    build_windows_emulator(
        clangxx=toolchain.clangxx,
        llvm_objdump=toolchain.llvm_objdump,
        kernel_dirs=[run / "kernels"],
        build_dir=WORK / "emulator",
        install_dir=run / "emulator",
    )
    return run


def make_package(library: Path) -> Path:
    """A directory to import flash_attn_rocm from: its Python code and the DLL."""
    place = WORK / "site"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(ROOT / "src" / "flash_attn_rocm", place / "flash_attn_rocm", ignore=shutil.ignore_patterns("*.so"))
    target = place / "flash_attn_rocm" / "lib" / library.name
    target.parent.mkdir(exist_ok=True)
    shutil.copyfile(library, target)
    return place


def run_check(python: WindowsPython, name: str, directory: Path) -> bool:
    """Run one check and print what it printed; whether it passed."""
    started = time.monotonic()
    try:
        done = python.run([windows_path(CHECKS), name, windows_path(directory)], {}, directory, _LONGEST_S)
        output = done.stdout
    except subprocess.TimeoutExpired:
        output = f"no end after {_LONGEST_S:.0f} s"
    passed = output.rstrip().endswith(f"passed {name}")
    print(f"{output.rstrip()}\n{'ok' if passed else 'FAILED'}: {name} ({time.monotonic() - started:.0f} s)", flush=True)
    return passed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="CHECK", help=f"which checks (default: {', '.join(NAMES)})")
    parser.add_argument(
        "--kernels",
        type=Path,
        default=ROOT / "build" / "env" / "share" / "flash_attn_rocm",
        help="directory that holds <gfx>/kernels.json (default: what the build installed)",
    )
    options = parser.parse_args()
    if unknown := set(options.names) - set(NAMES):
        parser.error(f"no check {', '.join(sorted(unknown))}; allowed: {', '.join(NAMES)}")
    try:
        directory = make_directory(options.kernels)
        python = make_windows_python(cache_root(), [make_package(build())])
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    passed = [run_check(python, name, directory) for name in options.names or NAMES]
    print(f"{sum(passed)} passed, {len(passed) - sum(passed)} failed")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
