"""The numbers by which code objects name their GPU, against the compiler that writes them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from flash_attn_rocm.archs import load_archs
from scripts.buildlib.toolchain import find_toolchain
from scripts.buildlib.toolchains.layout import Toolchain

EF_AMDGPU_MACH = 0xFF


@pytest.fixture(scope="module")
def toolchain() -> Toolchain:
    return find_toolchain(["gfx1201"])


@pytest.mark.parametrize("gfx", load_archs())
def test_elf_machine_is_what_the_compiler_writes(toolchain: Toolchain, gfx: str, tmp_path: Path) -> None:
    source, compiled = tmp_path / "empty.s", tmp_path / "empty.o"
    source.write_text("s_endpgm\n")
    target = ["-x", "assembler", "-target", "amdgcn-amd-amdhsa", f"-mcpu={gfx}"]
    subprocess.run([str(toolchain.clangxx), *target, "-c", str(source), "-o", str(compiled)], check=True)
    with compiled.open("rb") as stream:
        assert ELFFile(stream)["e_flags"] & EF_AMDGPU_MACH == load_archs()[gfx].elf_machine
