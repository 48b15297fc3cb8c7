"""What of a toolchain decides the machine code, as texts that are the same wherever the same toolchain is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from elftools.elf.elffile import ELFFile

from scripts.buildlib.cache import hash_file, hash_tree
from scripts.buildlib.repack.relocate import is_elf, needed_libraries
from scripts.buildlib.toolchains.layout import Toolchain

# Distributions put the compiler itself into libraries with these words in their names.
_COMPILER_LIBRARIES = ("LLVM", "clang", "lld")


def identify_program(path: Path) -> str:
    """The linker's build id of an ELF file, else the hash of the file.

    The build id is a hash of the contents that survives relocation: the copy of the same clang in a conda package has
    another RPATH, and is the same compiler.
    """
    if is_elf(path):
        with path.open("rb") as stream:
            section = ELFFile(stream).get_section_by_name(".note.gnu.build-id")
            for note in section.iter_notes() if section else ():
                if note["n_type"] == "NT_GNU_BUILD_ID":
                    return f"build id {note['n_desc']}"
    return f"sha256 {hash_file(path)}"


def identify_programs(programs: Mapping[str, Path]) -> dict[str, str]:
    """Identities of programs and of the libraries that hold the compiler, by "program NAME"."""
    places = {name: path.resolve() for name, path in programs.items()}
    libraries = needed_libraries(path for path in places.values() if is_elf(path))
    files = {
        **places,
        **{name: path for name, path in libraries.items() if any(word in name for word in _COMPILER_LIBRARIES)},
    }
    return {f"program {name}": identify_program(path.resolve()) for name, path in files.items()}


def identify_compiler(toolchain: Toolchain) -> dict[str, str]:
    """Parts of a compile's cache key: versions, the programs and their libraries, and the bitcode's content."""
    return {
        "clang": toolchain.clang_version,
        "target": toolchain.clang_target,
        "lld": toolchain.lld_version,
        "hip": toolchain.hip_version,
        "bitcode": hash_tree(toolchain.device_lib_path.glob("*.bc")),
        **identify_programs({"clang": toolchain.clangxx, "lld": toolchain.lld}),
    }
