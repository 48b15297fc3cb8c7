"""Build the emulated HIP runtime (emulator/) with CMake and ninja, and put it into a directory."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.buildlib import cached_compile
from scripts.buildlib.cache_root import cache_root
from scripts.buildlib.commands import find_program, run_command
from scripts.buildlib.compiler_identity import identify_programs
from scripts.buildlib.errors import BuildError

ROOT = Path(__file__).resolve().parents[2]
LIBRARY_NAME = "libamdhip64.so"


def compile_launcher(clangxx: Path, places: Mapping[str, Path] | None = None) -> list[str]:
    """The command that CMake puts before the compiler, so that objects come from the compile cache.

    `places` are directories of headers, by a name for each: where they are does not matter to what is cached.
    """
    identity = json.dumps(identify_programs({"clang": clangxx}), sort_keys=True)
    roots = {"project": ROOT, "compiler": clangxx.resolve().parent.parent, **(places or {})}
    return [
        sys.executable,
        *("-I", str(Path(cached_compile.__file__))),
        *("--cache", str(cache_root() / "emulator")),
        *("--identity", hashlib.sha256(identity.encode()).hexdigest()),
        *(f"--root={name}={path}" for name, path in roots.items()),
        "--",
    ]


def build_emulator(
    *,
    clangxx: Path,
    llvm_objdump: Path,
    kernel_dirs: Sequence[Path],
    golden_dirs: Sequence[Path] = (),
    build_dir: Path,
    install_dir: Path,
) -> Path:
    """Configure, compile and install the emulator; what is up to date or in the compile cache is not compiled again.

    Args:
        clangxx: clang++ >= 20 with the amdgcn target (it also assembles the test kernels).
        llvm_objdump: llvm-objdump >= 20.
        kernel_dirs: directories of code objects, or of <gfx>/ directories of them. The instruction shapes of these
            kernels get handlers, and their decoded listings are installed.
        golden_dirs: the same, but of kernels that only tests run: they get handlers, nothing of them is installed.
        build_dir: CMake's build directory.
        install_dir: the emulator directory: libamdhip64.so, decoded/, isa/ (test kernels).

    Returns:
        The installed library.

    Raises:
        BuildError: a path or a build program does not exist.
        CommandError: CMake, the generator (an instruction without a row in emulator/isa) or the compiler failed.
    """
    for what, path in (
        ("clang++", clangxx),
        ("llvm-objdump", llvm_objdump),
        *(("kernels", d) for d in (*kernel_dirs, *golden_dirs)),
    ):
        if not path.exists():
            raise BuildError(f"building the emulator: {what} {path} does not exist")
    cmake, ninja = find_program("cmake"), find_program("ninja")
    definitions = {
        "CMAKE_CXX_COMPILER": clangxx,
        "CMAKE_CXX_COMPILER_LAUNCHER": ";".join(compile_launcher(clangxx)),
        "CMAKE_MAKE_PROGRAM": ninja,
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_INSTALL_PREFIX": install_dir,
        "KERNEL_DIRS": ";".join(str(path.resolve()) for path in kernel_dirs),
        "GOLDEN_DIRS": ";".join(str(path.resolve()) for path in golden_dirs),
        "LLVM_OBJDUMP": llvm_objdump,
        "Python3_EXECUTABLE": sys.executable,
    }
    configure: list[str | Path] = [cmake, "-S", ROOT / "emulator", "-B", build_dir, "-G", "Ninja"]
    configure += [f"-D{name}={value}" for name, value in definitions.items()]
    run_command("configuring the emulator", configure)
    run_command("building the emulator", [cmake, "--build", build_dir])
    for stale in ("decoded", "isa"):  # kernels that are gone must not stay installed
        shutil.rmtree(install_dir / stale, ignore_errors=True)
    run_command("installing the emulator", [cmake, "--install", build_dir])
    return install_dir / LIBRARY_NAME
