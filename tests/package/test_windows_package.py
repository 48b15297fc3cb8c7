"""The package for win-64 in dist/: what it holds, what its DLL needs and offers; otherwise it is the Linux package."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from conda_package_handling import api

from scripts.buildlib.windows.host_library import check_imports
from scripts.buildlib.windows.pe import read_library

ROOT = Path(__file__).resolve().parents[2]
DLL = "site-packages/flash_attn_rocm/lib/flash_attn_rocm.dll"
LINUX_LIBRARY = "site-packages/flash_attn_rocm/lib/libflash_attn_rocm.so"


def _extract(archive: Path, folder: Path) -> Path:
    api.extract(str(archive), str(folder))
    return folder


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = list((ROOT / "dist" / "win-64").glob("flash-attn-rocm-*.conda"))
    if not found:
        pytest.skip("dist/win-64 holds no package: run ./pixiw run build-windows")
    (archive,) = found
    return _extract(archive, tmp_path_factory.mktemp("windows"))


@pytest.fixture(scope="module")
def linux(dist: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    (archive,) = (ROOT / "dist" / "linux-64").glob("flash-attn-rocm-[0-9]*.conda")
    return _extract(archive, tmp_path_factory.mktemp("linux"))


def _info(package: Path, name: str) -> Any:
    return json.loads((package / "info" / f"{name}.json").read_text(encoding="utf-8"))


def _files(package: Path) -> set[str]:
    return {row["_path"] for row in _info(package, "paths")["paths"]}


def test_it_is_the_package_of_linux_with_another_library(package: Path, linux: Path) -> None:
    record = re.compile(r".*\.dist-info/.*")  # the installer's own notes
    here, there = ({name for name in _files(root) if not record.match(name)} for root in (package, linux))
    assert here - there == {DLL}
    assert there - here == {LINUX_LIBRARY}
    for name in here & there:
        assert (package / name).read_bytes() == (linux / name).read_bytes(), name
    assert any(name.endswith(".dist-info/METADATA") for name in _files(package))


def test_its_metadata_is_that_of_linux(package: Path, linux: Path) -> None:
    windows, other = _info(package, "index"), _info(linux, "index")
    assert (windows["subdir"], windows["noarch"]) == ("win-64", "python")
    assert set(windows["depends"]) == {spec for spec in other["depends"] if not spec.startswith("__glibc")}
    assert _info(package, "link") == _info(linux, "link")  # the entry points


def test_the_dll_needs_only_torch_and_windows(package: Path) -> None:
    check_imports(package / DLL)
    library = read_library(package / DLL)
    # The stable ABI is C: no mangled name of C++ among what is taken from torch.
    assert library.imports["torch_cpu.dll"]
    assert [name for name in library.imports["torch_cpu.dll"] if not re.fullmatch(r"(aoti_)?torch_\w+", name)] == []


def test_the_dll_offers_the_c_interface_and_nothing_else(package: Path) -> None:
    header = (ROOT / "csrc" / "host" / "c_api.h").read_text(encoding="utf-8")
    declared = set(re.findall(r"FA_ROCM_EXPORT[^;(]*\b(fa_rocm_\w+)\(", header))
    assert set(read_library(package / DLL).exports) == declared


def test_the_dll_names_neither_time_nor_place_of_its_build(package: Path) -> None:
    data = (package / DLL).read_bytes()
    assert read_library(package / DLL).timestamp == 0
    for trace in (f"{ROOT}/".encode(), f"{Path.home()}/".encode(), b"/usr/", b"rattler-build_"):
        assert trace not in data
