"""Finding a compiler: what makes a candidate, why others lose, and what is printed when nothing works."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.buildlib.errors import ToolchainNotFoundError
from scripts.buildlib.toolchain import Candidate, choose, list_candidates
from scripts.buildlib.toolchains import conda, opt_rocm, rocm_sdk
from scripts.buildlib.toolchains.layout import Parts, bitcode_producer, inspect_parts
from scripts.toolchain import make_table
from tests.unit.fake_toolchain import make_clang, make_rocm, write_script

GFX = ("gfx1201",)
# The first 48 bytes of a file that LLVM 21.1.8 wrote.
LLVM_21_HEAD = "4243c0de3514000005000000620c30244a59bea65dfbb5cf0b51804c01000000210c0000f8c800000b02210002000000"
PROBE_FAILS = 'echo "x.hip:1:1: error: Unknown attribute kind (102)" >&2; exit 1'


def inspect(tmp_path: Path, clang: Path | None, rocm: Path) -> Candidate:
    parts = Parts([clang] if clang else [], [rocm], [rocm / "amdgcn" / "bitcode"])
    return inspect_parts("test", "here", parts, GFX, fix="do this")


def test_complete_place_is_a_toolchain(tmp_path: Path) -> None:
    candidate = inspect(tmp_path, make_clang(tmp_path / "bin"), make_rocm(tmp_path / "rocm"))
    toolchain = candidate.toolchain
    assert toolchain is not None
    assert toolchain.clang_version == "clang version 22.1.8"
    assert toolchain.hip_version == "6.4.43484"
    assert toolchain.hip_include == tmp_path / "rocm" / "include"
    assert candidate.versions["HIP"] == "6.4.43484"


@pytest.mark.parametrize(
    ("clang", "rocm", "reason"),
    [
        ({"version": "clang version 19.1.7"}, {}, "clang 19 is too old; at least 20"),
        ({"target": "x86"}, {}, "without the amdgcn target"),
        ({"lld": False}, {}, "finds no lld"),
        ({}, {"hip": (6, 1)}, r"HIP headers 6.1.43484 are too old; at least 6.2"),
        ({}, {"gfxs": ("gfx942",)}, "device libraries do not know gfx1201"),
        ({"compile_with": PROBE_FAILS}, {}, "cannot compile a test kernel for gfx1201: .*Unknown attribute kind"),
    ],
)
def test_each_missing_part_is_named(
    tmp_path: Path, clang: dict[str, object], rocm: dict[str, object], reason: str
) -> None:
    candidate = inspect(tmp_path, make_clang(tmp_path / "bin", **clang), make_rocm(tmp_path / "rocm", **rocm))
    assert candidate.toolchain is None
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(candidate.reason)
    assert candidate.fix == "do this"


def test_missing_compiler_and_missing_headers_are_named(tmp_path: Path) -> None:
    assert inspect(tmp_path, None, make_rocm(tmp_path / "rocm")).reason == "no clang++"
    assert "no HIP headers" in inspect(tmp_path, make_clang(tmp_path / "bin"), tmp_path / "empty").reason


def test_choose_takes_the_first_that_works_and_asks_no_further(tmp_path: Path) -> None:
    good = inspect(tmp_path, make_clang(tmp_path / "bin"), make_rocm(tmp_path / "rocm"))
    assert good.toolchain is not None
    later = replace(good, toolchain=replace(good.toolchain, origin="later"))

    def candidates():
        yield Candidate("first", "x", None, "broken")
        yield good
        yield later
        pytest.fail("asked for more than needed")

    assert choose(iter([Candidate("first", "x", None, "broken"), good, later])) is good.toolchain
    assert choose(candidates()) is good.toolchain


def test_when_nothing_works_every_reason_and_command_is_printed() -> None:
    tried = [
        Candidate("conda", "CONDA_PREFIX", None, "not active"),
        Candidate("apt", "here", None, "no root", "sudo x"),
    ]
    with pytest.raises(ToolchainNotFoundError) as error:
        choose(tried)
    for text in ("conda (CONDA_PREFIX): not active", "apt (here): no root", "sudo x", "HIP headers >= 6.2"):
        assert text in str(error.value)


def test_recipe_build_looks_only_into_its_own_prefixes(tmp_path: Path) -> None:
    make_clang(tmp_path / "build" / "bin")
    make_rocm(tmp_path / "host")
    elsewhere = make_rocm(tmp_path / "opt")
    make_clang(elsewhere / "llvm" / "bin")
    env = {
        "CONDA_BUILD": "1",
        "BUILD_PREFIX": str(tmp_path / "build"),
        "PREFIX": str(tmp_path / "host"),
        "ROCM_PATH": str(elsewhere),
        "PATH": os.environ["PATH"],
    }
    candidates = list(list_candidates(GFX, env, tmp_path / "cache", may_install=False))
    assert [candidate.origin for candidate in candidates] == ["conda"]
    toolchain = choose(candidates)
    assert toolchain.clangxx == tmp_path / "build" / "bin" / "clang++"
    assert toolchain.rocm_path == tmp_path / "host"


def test_conda_prefers_amd_clang_and_an_inactive_prefix_variable_is_ignored(tmp_path: Path) -> None:
    make_rocm(tmp_path)
    make_clang(tmp_path / "bin")
    amd = make_clang(tmp_path / "lib" / "llvm" / "bin", version="AMD clang version 20.0.0git (roc-7.1.0)")
    (candidate,) = conda.find_candidates({"CONDA_PREFIX": str(tmp_path)}, GFX)
    assert candidate.toolchain is not None
    assert candidate.toolchain.clangxx == amd
    (candidate,) = conda.find_candidates({"PREFIX": str(tmp_path)}, GFX)
    assert candidate.reason == "no conda environment is active"


def test_rocm_trees_newest_first_and_each_once(tmp_path: Path) -> None:
    for version in ("rocm-6.4.0", "rocm-7.1.0"):
        make_clang(make_rocm(tmp_path / version) / "llvm" / "bin")
    (tmp_path / "rocm").symlink_to(tmp_path / "rocm-6.4.0")
    candidates = list(opt_rocm.find_candidates({"ROCM_PATH": str(tmp_path / "gone")}, GFX, opt=tmp_path))
    assert [Path(candidate.where).name for candidate in candidates] == ["gone", "rocm", "rocm-7.1.0"]
    assert [candidate.toolchain is not None for candidate in candidates] == [False, True, True]
    assert candidates[0].reason == "no such directory"


def test_rocm_sdk_that_was_not_initialised_says_so(tmp_path: Path) -> None:
    write_script(tmp_path / "bin" / "rocm-sdk", f'#!/bin/sh\necho "{tmp_path}/devel"\n')
    (candidate,) = rocm_sdk.find_candidates({"PATH": str(tmp_path / "bin")}, GFX)
    assert "rocm-sdk init" in candidate.reason
    assert candidate.fix == "rocm-sdk init"
    make_clang(make_rocm(tmp_path / "devel") / "lib" / "llvm" / "bin")
    (candidate,) = rocm_sdk.find_candidates({"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}, GFX)
    assert candidate.toolchain is not None


def test_table_marks_the_winner_and_says_why_others_lost(tmp_path: Path) -> None:
    good = inspect(tmp_path, make_clang(tmp_path / "bin"), make_rocm(tmp_path / "rocm"))
    table = make_table([Candidate("conda", "x", None, "not active", "pip install 'a[b]'"), good, replace(good)])
    verdicts = list(table.columns[4].cells)
    assert verdicts[0] == "not active\npip install 'a\\[b]'"
    assert verdicts[1].startswith("chosen")
    assert verdicts[2] == "works, but test comes first"
    assert list(table.columns[0].cells) == ["", "→", ""]


def test_bitcode_names_the_llvm_that_wrote_it(tmp_path: Path) -> None:
    file = tmp_path / "x.bc"
    file.write_bytes(bytes.fromhex(LLVM_21_HEAD))
    assert bitcode_producer(file) == "LLVM21.1.8"
    file.write_bytes(b"BC\xc0\xde" + bytes(60))
    assert bitcode_producer(file) == "unknown"
