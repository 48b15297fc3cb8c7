"""What makes two toolchains the same compiler for the cache: content, wherever it is and however it was relocated."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.buildlib.compiler_identity import identify_compiler, identify_program
from scripts.buildlib.repack.relocate import is_elf, set_rpath
from scripts.buildlib.toolchains.layout import Parts, Toolchain, inspect_parts
from tests.unit.fake_toolchain import make_clang, make_rocm


def toolchain(root: Path, hip: tuple[int, int] = (6, 4)) -> Toolchain:
    clang, rocm = make_clang(root / "bin"), make_rocm(root / "rocm", hip)
    candidate = inspect_parts("test", "here", Parts([clang], [rocm], [rocm / "amdgcn" / "bitcode"]), ())
    assert candidate.toolchain is not None, candidate.reason
    return candidate.toolchain


def test_the_place_of_a_toolchain_does_not_matter(tmp_path: Path) -> None:
    first = toolchain(tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    moved = Toolchain(
        **{
            name: Path(str(value).replace("/one/", "/two/")) if isinstance(value, Path) else value
            for name, value in vars(first).items()
        }
    )
    assert moved.clangxx.is_file()
    assert identify_compiler(moved) == identify_compiler(first)
    assert str(tmp_path) not in str(identify_compiler(first).values())


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found.clangxx.write_text(found.clangxx.read_text() + "# patched\n"),
        lambda found: found.lld.write_text(found.lld.read_text() + "# patched\n"),
        lambda found: (found.device_lib_path / "ockl.bc").write_bytes(b"BC\xc0\xdf"),
    ],
    ids=["clang", "lld", "bitcode"],
)
def test_the_same_version_with_another_content_is_another_compiler(
    tmp_path: Path, change: Callable[[Toolchain], object]
) -> None:
    found = toolchain(tmp_path)
    before = identify_compiler(found)
    change(found)
    assert identify_compiler(found) != before


def test_another_hip_is_another_compiler(tmp_path: Path) -> None:
    assert identify_compiler(toolchain(tmp_path / "a")) != identify_compiler(toolchain(tmp_path / "b", hip=(7, 0)))


@pytest.mark.skipif(sys.platform != "linux", reason="ELF files and patchelf are Linux's")
def test_a_relocated_copy_is_the_same_program(tmp_path: Path) -> None:
    shell = Path("/bin/sh").resolve()
    assert is_elf(shell)
    # From binutils' documentation of --build-id: the first bytes of the note's description, in hexadecimal.
    assert identify_program(shell).startswith("build id ")
    copy = tmp_path / "sh"
    shutil.copy(shell, copy)
    set_rpath([copy], "$ORIGIN/../lib")
    assert copy.read_bytes() != shell.read_bytes()
    assert subprocess.run([copy, "-c", "exit 0"], check=False).returncode == 0
    assert identify_program(copy) == identify_program(shell)
