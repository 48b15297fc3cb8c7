"""Kernel packages are noarch: nothing in the code objects or in kernels.json may depend on the host of the build."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

# Of a host's compiler, system or directories. The compiler's own name and version are in .comment.
HOST_WORDS = re.compile(
    rb"linux|windows|msvc|mingw|x86_64|/usr/|/home/|/root/|/tmp/|[A-Z]:\\\\|\.hip\b|\.cpp\b|\.hpp\b"
)


@pytest.fixture(scope="module")
def directories(environment: Path) -> list[Path]:
    found = [path.parent for path in sorted((environment / "share" / "flash_attn_rocm").glob("*/kernels.json"))]
    assert found
    return found


def _manifest(directory: Path) -> dict[str, Any]:
    table: dict[str, Any] = json.loads((directory / "kernels.json").read_text(encoding="utf-8"))
    return table


def test_no_code_object_names_a_host(directories: list[Path]) -> None:
    """Its target is the GPU's alone, and no section holds a path or the name of a system."""
    for path in (file for directory in directories for file in directory.glob("*.co")):
        with path.open("rb") as stream:
            elf = ELFFile(stream)
            assert elf["e_machine"] == "EM_AMDGPU"
            for section in elf.iter_sections():
                if section.name in (".text", ".rodata", ".comment") or section["sh_type"] == "SHT_NOBITS":
                    continue  # machine code and tables of numbers spell anything
                assert not HOST_WORDS.search(section.data()), (path.name, section.name)


def test_no_manifest_names_a_host(directories: list[Path]) -> None:
    for directory in directories:
        text = (directory / "kernels.json").read_bytes()
        assert not HOST_WORDS.search(text), HOST_WORDS.search(text)
        assert b"\r" not in text


def test_arguments_are_laid_out_by_the_size_of_each_alone(directories: list[Path]) -> None:
    """Every field lies at a multiple of its size and none overlap: the host fills bytes by these offsets, and no
    compiler of a host lays the structure out again (MSVC would place empty base classes elsewhere)."""
    for kernel in (row for directory in directories for row in _manifest(directory)["kernels"]):
        end = 0
        for offset, size in sorted(kernel["args"].values()):
            assert size in (1, 2, 4, 8, 16), kernel["name"]
            assert offset % min(size, 8) == 0, kernel["name"]
            assert offset >= end, kernel["name"]
            end = offset + size
        assert end <= kernel["kargs_bytes"], kernel["name"]
        assert kernel["kargs_bytes"] <= kernel["kernarg_bytes"], kernel["name"]
