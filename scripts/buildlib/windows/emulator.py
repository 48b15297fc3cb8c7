"""Cross builds the emulated HIP runtime as amdhip64.dll, with clang and MinGW-w64's libraries."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts.buildlib.commands import find_program, run_command
from scripts.buildlib.emulator import compile_launcher
from scripts.buildlib.errors import BuildError
from scripts.buildlib.windows.pe import read_library

ROOT = Path(__file__).resolve().parents[3]
TOOLCHAIN = Path(__file__).with_name("mingw_clang.cmake")
LIBRARY_NAME = "amdhip64.dll"
ALLOWED_DLLS = frozenset({"kernel32.dll", "msvcrt.dll"})
_TOOLS = ("fa-emu-shapes", "fa-emu-listing")


def build_windows_emulator(
    *, clangxx: Path, llvm_objdump: Path, kernel_dirs: Sequence[Path], build_dir: Path, install_dir: Path
) -> Path:
    """Configure, compile and install the DLL and the decoded listings of these kernels; no test kernels.

    Args:
        clangxx: clang++ >= 20 of this machine; MinGW-w64's headers and libraries must be installed.
        llvm_objdump: llvm-objdump >= 20.
        kernel_dirs: directories that hold <gfx>/ directories of code objects.
        build_dir: two of CMake's build directories go here: the tools that run now, and the DLL.
        install_dir: the emulator directory.

    Raises:
        BuildError: CMake or the compiler failed, or the DLL needs foreign DLLs.
    """
    cmake = find_program("cmake")
    shared: dict[str, str | Path] = {
        "CMAKE_CXX_COMPILER": clangxx,
        "CMAKE_CXX_COMPILER_LAUNCHER": ";".join(compile_launcher(clangxx)),
        "CMAKE_MAKE_PROGRAM": find_program("ninja"),
        "CMAKE_BUILD_TYPE": "Release",
        "KERNEL_DIRS": ";".join(str(path.resolve()) for path in kernel_dirs),
        "LLVM_OBJDUMP": llvm_objdump,
        "Python3_EXECUTABLE": sys.executable,
        "TEST_KERNELS": "OFF",
    }
    tools, build = build_dir / "tools", build_dir / "dll"
    cross = {"CMAKE_TOOLCHAIN_FILE": TOOLCHAIN, "NATIVE_TOOLS": tools, "CMAKE_INSTALL_PREFIX": install_dir}
    for directory, definitions in ((tools, shared), (build, {**shared, **cross})):
        configure: list[str | Path] = [cmake, "-S", ROOT / "emulator", "-B", directory, "-G", "Ninja"]
        configure += [f"-D{name}={value}" for name, value in definitions.items()]
        run_command("configuring the emulator for Windows", configure)
        targets = ["--target", *_TOOLS] if directory == tools else []
        run_command("building the emulator for Windows", [cmake, "--build", directory, *targets])
    shutil.rmtree(install_dir / "decoded", ignore_errors=True)
    run_command("installing the emulator for Windows", [cmake, "--install", build])
    library = install_dir / LIBRARY_NAME
    if foreign := [name for name in read_library(library).imports if name.lower() not in ALLOWED_DLLS]:
        raise BuildError(f"{library} needs {', '.join(foreign)}; allowed: {', '.join(sorted(ALLOWED_DLLS))}")
    return library
