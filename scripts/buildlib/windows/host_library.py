"""Cross builds flash_attn_rocm.dll with MinGW-w64, and checks that it needs nothing but torch and Windows."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

from scripts.buildlib.commands import find_program, run_command
from scripts.buildlib.emulator import compile_launcher
from scripts.buildlib.errors import BuildError
from scripts.buildlib.windows.mingw import Mingw
from scripts.buildlib.windows.pe import read_library
from scripts.buildlib.windows.torch_wheel import BUILD_PARTS, unpack_wheel

ROOT = Path(__file__).resolve().parents[3]
TOOLCHAIN = Path(__file__).with_name("mingw_gcc.cmake")
LIBRARY_NAME = "flash_attn_rocm.dll"
# DLLs that every Windows has (msvcrt.dll is the C library of Windows itself, not of a compiler), and torch's.
ALLOWED_DLLS = frozenset({"torch_cpu.dll", "kernel32.dll", "msvcrt.dll"})


class ForeignDllError(BuildError):
    """The DLL needs files that a Windows machine may not have."""

    def __init__(self, library: Path, foreign: list[str]) -> None:
        super().__init__(f"{library} needs {', '.join(foreign)}; allowed: {', '.join(sorted(ALLOWED_DLLS))}")


def nlohmann_include() -> Path:
    """The directory that holds nlohmann/json.hpp: of the Python package nlohmann-json, else of the environment.

    Raises:
        BuildError: there is none.
    """
    candidates = [Path(sys.prefix) / "include", Path("/usr/include")]
    try:
        for file in importlib.metadata.distribution("nlohmann-json").files or ():
            if file.name == "json.hpp":
                candidates.insert(0, Path(str(file.locate())).resolve().parent.parent)
    except importlib.metadata.PackageNotFoundError:
        pass
    for directory in candidates:
        if (directory / "nlohmann" / "json.hpp").exists():
            return directory
    raise BuildError("nlohmann/json.hpp was not found; install it: pip install nlohmann-json")


def check_imports(library: Path) -> None:
    """Raise ForeignDllError where a DLL needs more than torch and Windows."""
    foreign = [name for name in read_library(library).imports if name.lower() not in ALLOWED_DLLS]
    if foreign:
        raise ForeignDllError(library, foreign)


def build_host_library(mingw: Mingw, cache: Path, build_dir: Path, install_dir: Path) -> Path:
    """Configure, compile and install the DLL; what is up to date is not compiled again.

    Raises:
        BuildError: torch's wheel cannot be had, CMake or the compiler failed, or the DLL needs foreign DLLs.
    """
    torch = unpack_wheel(cache, "build", BUILD_PARTS) / "torch"
    includes = [torch / "include", torch / "include" / "torch" / "csrc" / "api" / "include"]
    json = nlohmann_include()
    definitions = {
        "CMAKE_TOOLCHAIN_FILE": TOOLCHAIN,
        "CMAKE_CXX_COMPILER_LAUNCHER": ";".join(compile_launcher(mingw.cxx, {"torch": torch, "json": json})),
        "CMAKE_MAKE_PROGRAM": find_program("ninja"),
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_INSTALL_PREFIX": install_dir,
        "TORCH_INCLUDE_DIRS": ";".join(map(str, includes)),
        "TORCH_LIB_DIR": torch / "lib",
        "NLOHMANN_INCLUDE_DIR": json,
    }
    cmake = find_program("cmake")
    configure: list[str | Path] = [cmake, "-S", ROOT / "csrc", "-B", build_dir, "-G", "Ninja"]
    configure += [f"-D{name}={value}" for name, value in definitions.items()]
    run_command("configuring the library for Windows", configure)
    run_command("building the library for Windows", [cmake, "--build", build_dir])
    run_command("installing the library for Windows", [cmake, "--install", build_dir])
    library = install_dir / LIBRARY_NAME
    check_imports(library)
    return library
