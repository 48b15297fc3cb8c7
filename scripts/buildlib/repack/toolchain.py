"""Conda packages of the compiler found on this machine, so that the recipe's isolated build uses the same one.

`hip-clang_linux-64` is what rock-the-conda calls the HIP compiler; here it is one package with all that compiling a
kernel needs. Its libraries come along and are found relative to the programs, wherever it came from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from scripts.buildlib.repack.archive import Repack, digest_entries, staged_files
from scripts.buildlib.repack.relocate import copy_writable, is_elf, needed_libraries, set_rpath
from scripts.buildlib.toolchains.layout import Toolchain

# Where clang reads the version of HIP; without one it assumes 3.5 and leaves out its own wrapper headers.
_HIP_VERSION_FILES = ("share/hip/version", "bin/.hipVersion")


def _version(toolchain: Toolchain) -> str:
    found = re.search(r"\d+\.\d+(\.\d+)?", toolchain.clang_version)
    return found.group() if found else "0"


def _program_entries(home: str, programs: dict[str, Path]) -> list[tuple[Path, str]]:
    """Programs for <home>/bin and the libraries they load for <home>/lib."""
    real = {name: path.resolve() for name, path in programs.items()}
    entries = [(path, f"{home}/bin/{name}") for name, path in real.items()]
    return entries + [(path, f"{home}/lib/{soname}") for soname, path in needed_libraries(real.values()).items()]


def _tree_entries(source: Path, target: str) -> list[tuple[Path, str]]:
    files = sorted(path for path in source.rglob("*") if path.is_file())
    return [(path, f"{target}/{path.relative_to(source).as_posix()}") for path in files]


def _compiler_entries(toolchain: Toolchain) -> list[tuple[Path, str]]:
    programs = {"clang": toolchain.clangxx, "lld": toolchain.lld}
    if toolchain.llvm_objdump:
        programs["llvm-objdump"] = toolchain.llvm_objdump
    resources = toolchain.resource_dir
    return [
        *_program_entries("lib/llvm", programs),
        *_tree_entries(resources / "include", f"lib/llvm/lib/clang/{resources.name}/include"),
        *_tree_entries(toolchain.hip_include / "hip", "include/hip"),
        *_tree_entries(toolchain.device_lib_path, "amdgcn/bitcode"),
        *(
            (toolchain.rocm_path / marker, marker)
            for marker in _HIP_VERSION_FILES
            if (toolchain.rocm_path / marker).is_file()
        ),
    ]


def _copy(entries: Iterable[tuple[Path, str]], staging: Path) -> None:
    """Copy the files; programs then find their libraries beside them."""
    programs = []
    for source, target in entries:
        copy = copy_writable(source, staging / target)
        if copy.parent.name == "bin" and is_elf(copy):
            programs.append(copy)
    set_rpath(programs, "$ORIGIN/../lib")


def _stage_compiler(entries: Iterable[tuple[Path, str]], staging: Path) -> Iterable[tuple[Path, str]]:
    _copy(entries, staging)
    folder = staging / "lib/llvm/bin"
    (folder / "clang++").symlink_to("clang")
    (folder / "ld.lld").symlink_to("lld")
    return staged_files(staging)


def plan_compiler(toolchain: Toolchain) -> Repack:
    """The compiler, HIP headers and device libraries as `hip-clang_linux-64`."""
    entries = _compiler_entries(toolchain)
    return Repack(
        name="hip-clang_linux-64",
        version=_version(toolchain),
        identity=digest_entries(entries),
        depends=(),
        stage=lambda staging: _stage_compiler(entries, staging),
    )


def _stage_alias(staging: Path) -> Iterable[tuple[Path, str]]:
    (staging / "bin").mkdir()
    for name in ("clang", "clang++"):
        (staging / "bin" / name).symlink_to(f"../lib/llvm/bin/{name}")
    return staged_files(staging)


def plan_clangxx(compiler: Repack) -> Repack:
    """The clang of plan_compiler's package as `clangxx`, conda-forge's name for it as this machine's C++ compiler."""
    depends = (f"{compiler.name} {compiler.version} {compiler.build_string}",)
    return Repack("clangxx", compiler.version, compiler.key, depends, _stage_alias)


def _stage_tools(entries: Iterable[tuple[Path, str]], staging: Path) -> Iterable[tuple[Path, str]]:
    _copy(entries, staging)
    (staging / "bin").mkdir()
    (staging / "bin/llvm-objdump").symlink_to("../lib/llvm-tools/bin/llvm-objdump")
    return staged_files(staging)


def plan_llvm_tools(toolchain: Toolchain) -> Repack:
    """The toolchain's llvm-objdump as `llvm-tools`, for the emulator.

    Raises:
        LookupError: the toolchain has no llvm-objdump.
    """
    if toolchain.llvm_objdump is None:
        release = _version(toolchain).split(".")[0]
        raise LookupError(f"the toolchain at {toolchain.clangxx} has no llvm-objdump; install llvm-{release}")
    entries = _program_entries("lib/llvm-tools", {"llvm-objdump": toolchain.llvm_objdump})
    return Repack(
        name="llvm-tools",
        version=_version(toolchain),
        identity=digest_entries(entries),
        depends=(),
        stage=lambda staging: _stage_tools(entries, staging),
    )
