"""Conda packages of the compiler found on this machine, so that the recipe's isolated build uses the same one.

`hip-clang_linux-64` is what rock-the-conda calls the HIP compiler; here it is one package with all that compiling a
kernel needs. Its libraries come along and are found relative to the programs, wherever it came from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from scripts.buildlib.repack.archive import Repack, digest_files, staged_files
from scripts.buildlib.repack.relocate import copy_writable, is_elf, needed_libraries, set_rpath
from scripts.buildlib.toolchains.layout import Toolchain

# Where clang reads the version of HIP; without one it assumes 3.5 and leaves out its own wrapper headers.
_HIP_VERSION_FILES = ("share/hip/version", "bin/.hipVersion")


def _version(toolchain: Toolchain) -> str:
    found = re.search(r"\d+\.\d+(\.\d+)?", toolchain.clang_version)
    return found.group() if found else "0"


def _stage_programs(staging: Path, home: str, programs: dict[str, Path]) -> None:
    """Copy programs to <home>/bin and the libraries they load to <home>/lib."""
    real = {name: path.resolve() for name, path in programs.items()}
    copies = [copy_writable(path, staging / home / "bin" / name) for name, path in real.items()]
    set_rpath([path for path in copies if is_elf(path)], "$ORIGIN/../lib")
    for soname, source in needed_libraries(real.values()).items():
        copy_writable(source, staging / home / "lib" / soname)


def _stage_tree(staging: Path, source: Path, target: str) -> None:
    for path in sorted(source.rglob("*")):
        if path.is_file():
            copy_writable(path, staging / target / path.relative_to(source))


def _stage_compiler(toolchain: Toolchain, staging: Path) -> Iterable[tuple[Path, str]]:
    programs = {"clang": toolchain.clangxx, "lld": toolchain.lld}
    if toolchain.llvm_objdump:
        programs["llvm-objdump"] = toolchain.llvm_objdump
    _stage_programs(staging, "lib/llvm", programs)
    folder = staging / "lib/llvm/bin"
    (folder / "clang++").symlink_to("clang")
    (folder / "ld.lld").symlink_to("lld")
    resources = toolchain.resource_dir
    _stage_tree(staging, resources / "include", f"lib/llvm/lib/clang/{resources.name}/include")
    _stage_tree(staging, toolchain.hip_include / "hip", "include/hip")
    _stage_tree(staging, toolchain.device_lib_path, "amdgcn/bitcode")
    for marker in _HIP_VERSION_FILES:
        if (toolchain.rocm_path / marker).is_file():
            copy_writable(toolchain.rocm_path / marker, staging / marker)
    return staged_files(staging)


def plan_compiler(toolchain: Toolchain) -> Repack:
    """The compiler, HIP headers and device libraries as `hip-clang_linux-64`."""
    programs = [toolchain.clangxx.resolve(), toolchain.lld.resolve()]
    data = [*sorted((toolchain.hip_include / "hip").glob("*.h")), *sorted(toolchain.device_lib_path.glob("*.bc"))]
    return Repack(
        name="hip-clang_linux-64",
        version=_version(toolchain),
        identity=digest_files([*programs, *needed_libraries(programs).values(), *data]),
        depends=(),
        stage=lambda staging: _stage_compiler(toolchain, staging),
    )


def _stage_alias(staging: Path) -> Iterable[tuple[Path, str]]:
    (staging / "bin").mkdir()
    for name in ("clang", "clang++"):
        (staging / "bin" / name).symlink_to(f"../lib/llvm/bin/{name}")
    return staged_files(staging)


def plan_clangxx(toolchain: Toolchain) -> Repack:
    """The same clang as `clangxx`, conda-forge's name for it as a compiler of C++ for this machine."""
    compiler = plan_compiler(toolchain)
    depends = (f"{compiler.name} {compiler.version} {compiler.build_string}",)
    return Repack("clangxx", compiler.version, compiler.key, depends, _stage_alias)


def _stage_tools(objdump: Path, staging: Path) -> Iterable[tuple[Path, str]]:
    _stage_programs(staging, "lib/llvm-tools", {"llvm-objdump": objdump})
    (staging / "bin").mkdir()
    (staging / "bin/llvm-objdump").symlink_to("../lib/llvm-tools/bin/llvm-objdump")
    return staged_files(staging)


def plan_llvm_tools(toolchain: Toolchain) -> Repack:
    """The toolchain's llvm-objdump as `llvm-tools`, for the emulator.

    Raises:
        LookupError: the toolchain has no llvm-objdump.
    """
    objdump = toolchain.llvm_objdump
    if objdump is None:
        release = _version(toolchain).split(".")[0]
        raise LookupError(f"the toolchain at {toolchain.clangxx} has no llvm-objdump; install llvm-{release}")
    return Repack(
        name="llvm-tools",
        version=_version(toolchain),
        identity=digest_files([objdump.resolve(), *needed_libraries([objdump.resolve()]).values()]),
        depends=(),
        stage=lambda staging: _stage_tools(objdump, staging),
    )
