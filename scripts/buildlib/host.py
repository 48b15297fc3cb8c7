"""Build the host library (csrc/) with CMake and ninja, and put it into a directory."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from scripts.buildlib.commands import find_program, run_command
from scripts.buildlib.errors import BuildError

ROOT = Path(__file__).resolve().parents[2]
_WINDOWS = sys.platform == "win32"
LIBRARY_NAME = "flash_attn_rocm.dll" if _WINDOWS else "libflash_attn_rocm.so"
TORCH_LIBRARY = "torch_cpu.lib" if _WINDOWS else "libtorch_cpu.so"


def build_host(
    *,
    cxx: Path,
    torch_include: Sequence[Path],
    torch_lib: Path,
    nlohmann_include: Path,
    build_dir: Path,
    install_dir: Path,
) -> Path:
    """Configure, compile and install the host library; what is up to date is not compiled again.

    Args:
        cxx: C++20 compiler (g++ >= 12 or clang++; on Windows cl or clang-cl).
        torch_include: include directories of torch >= 2.11.
        torch_lib: directory of libtorch_cpu (on Windows of its import library).
        nlohmann_include: directory that holds nlohmann/json.hpp.
        build_dir: CMake's build directory.
        install_dir: where the library goes.

    Returns:
        The installed library.

    Raises:
        BuildError: a path does not exist.
        CommandError: CMake or the compiler failed.
    """
    for what, path in (
        ("C++ compiler", cxx),
        ("torch library", torch_lib / TORCH_LIBRARY),
        ("nlohmann-json header", nlohmann_include / "nlohmann" / "json.hpp"),
    ):
        if not path.exists():
            raise BuildError(f"building the host library: {what} {path} does not exist")
    includes = ";".join(str(path) for path in torch_include)
    definitions = {
        "CMAKE_CXX_COMPILER": cxx,
        "CMAKE_MAKE_PROGRAM": find_program("ninja"),
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_INSTALL_PREFIX": install_dir,
        "TORCH_INCLUDE_DIRS": includes,
        "TORCH_LIB_DIR": torch_lib,
        "NLOHMANN_INCLUDE_DIR": nlohmann_include,
    }
    cmake = find_program("cmake")
    configure: list[str | Path] = [cmake, "-S", str(ROOT / "csrc"), "-B", str(build_dir), "-G", "Ninja"]
    configure += [f"-D{name}={value}" for name, value in definitions.items()]
    run_command("configuring the host library", configure)
    run_command("building the host library", [cmake, "--build", build_dir])
    run_command("installing the host library", [cmake, "--install", build_dir, "--strip"])
    return install_dir / LIBRARY_NAME
