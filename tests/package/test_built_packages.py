"""Every package in dist/, opened with conda-package-handling: contents, metadata, licences, sizes, no build path."""

from __future__ import annotations

import hashlib
import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conda_package_handling import api
from elftools.elf.elffile import ELFFile

from flash_attn_rocm.archs import load_archs

ROOT = Path(__file__).resolve().parents[2]
EM_AMDGPU = "EM_AMDGPU"
LIMIT_BYTES = 5_000_000  # main package and one GPU's kernels of a small profile together


@dataclass(frozen=True)
class Opened:
    """One unpacked package."""

    archive: Path
    root: Path

    @property
    def files(self) -> list[str]:
        return [row["_path"] for row in self.info("paths")["paths"]]

    def info(self, name: str) -> dict[str, Any]:
        table: dict[str, Any] = json.loads((self.root / "info" / f"{name}.json").read_text(encoding="utf-8"))
        return table


@pytest.fixture(scope="module")
def opened(dist: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Opened]:
    folder = tmp_path_factory.mktemp("opened")
    for name, archive in dist.items():
        api.extract(str(archive), str(folder / name))
    return {name: Opened(archive, folder / name) for name, archive in dist.items()}


@pytest.fixture(scope="module")
def kernels(opened: dict[str, Opened]) -> dict[str, Opened]:
    found = {name.removeprefix("flash-attn-rocm-kernels-"): one for name, one in opened.items() if "-kernels-" in name}
    assert found
    return found


def test_the_five_kinds_of_package_are_there(opened: dict[str, Opened], kernels: dict[str, Opened]) -> None:
    kinds = ("flash-attn-rocm", "flash-attn-rocm-compat", "flash-attn-rocm-emulator", "flash-attn-rocm-kernels")
    expected = set(kinds)
    assert set(opened) == expected | {f"flash-attn-rocm-kernels-{gfx}" for gfx in kernels}


def test_archive_names_follow_the_metadata(opened: dict[str, Opened]) -> None:
    for one in opened.values():
        index = one.info("index")
        assert one.archive.name == f"{index['name']}-{index['version']}-{index['build']}.conda"
        assert one.archive.parent.name == index["subdir"]


def test_listed_hashes_are_those_of_the_files(opened: dict[str, Opened]) -> None:
    for one in opened.values():
        for row in one.info("paths")["paths"]:
            if row["path_type"] == "hardlink":
                digest = hashlib.sha256((one.root / row["_path"]).read_bytes()).hexdigest()
                assert digest == row["sha256"], row["_path"]


def test_licences_are_included(opened: dict[str, Opened]) -> None:
    for one in opened.values():
        for name in ("LICENSE", "THIRD_PARTY_NOTICES.md"):
            assert (one.root / "info" / "licenses" / name).read_bytes() == (ROOT / name).read_bytes()
        assert one.info("about")["license"].startswith("BSD-3-Clause")


def test_no_path_of_the_build_is_left(opened: dict[str, Opened]) -> None:
    traces = [
        b"rattler-build_",
        b"host_env_placehold",
        b"build_env",
        b"file://",
        f"{ROOT}/".encode(),
        f"{Path.home()}/".encode(),
    ]
    found = [
        (name, path.relative_to(one.root).as_posix(), trace)
        for name, one in opened.items()
        for path in one.root.rglob("*")
        if path.is_file()
        for trace in traces
        if trace in path.read_bytes()
    ]
    assert found == []


def test_kernel_packages_hold_code_for_their_gpu_and_nothing_for_a_host(kernels: dict[str, Opened]) -> None:
    for gfx, one in kernels.items():
        index = one.info("index")
        assert (index["noarch"], index["subdir"]) == ("generic", "noarch")
        assert index.get("depends", []) == []
        folder = f"share/flash_attn_rocm/{gfx}/"
        assert {Path(path).suffix for path in one.files} == {".co", ".json"}
        assert all(path.startswith(folder) for path in one.files)
        for path in one.files:
            if path.endswith(".co"):
                with (one.root / path).open("rb") as stream:
                    header = ELFFile(stream).header
                assert header["e_machine"] == EM_AMDGPU
                assert header["e_flags"] & 0xFF == load_archs()[gfx].elf_machine


def test_kernels_json_names_exactly_the_code_objects(kernels: dict[str, Opened]) -> None:
    for gfx, one in kernels.items():
        folder = one.root / "share" / "flash_attn_rocm" / gfx
        manifest = json.loads((folder / "kernels.json").read_text(encoding="utf-8"))
        assert manifest["gfx"] == gfx
        assert manifest["kernels"]
        listed = {row["file"]: row["sha256"] for row in manifest["code_objects"]}
        on_disk = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.co")}
        assert on_disk == listed


def test_selectors_have_no_files_and_are_constrained_to_their_gpus(kernels: dict[str, Opened], tmp_path: Path) -> None:
    """They are several under one name, of which `opened` holds one."""
    every = "|".join(f"=={arch.amdgpu_arch}" for arch in load_archs().values())
    found = []
    for archive in (ROOT / "dist" / "noarch").glob("flash-attn-rocm-kernels-[0-9]*.conda"):
        api.extract(str(archive), str(tmp_path / archive.name))
        one = Opened(archive, tmp_path / archive.name)
        index = one.info("index")
        gfx = index["build"].split("_")[0]
        table = tomllib.loads((ROOT / "src" / "flash_attn_rocm" / "archs" / f"{gfx}.toml").read_text(encoding="utf-8"))
        assert one.files == []
        assert index["constrains"] == [f"__amdgpu_arch =={table['amdgpu_arch']}", f"__amdgpu_arch {every}"]
        assert index["depends"] == [f"flash-attn-rocm-kernels-{gfx} =={index['version']}"]
        found.append(gfx)
    assert sorted(found) == sorted(kernels)


def test_main_package_fits_every_python_and_torch(opened: dict[str, Opened]) -> None:
    one = opened["flash-attn-rocm"]
    index = one.info("index")
    assert (index["noarch"], index["subdir"]) == ("python", "linux-64")  # CEP 20
    assert {"python >=3.11", "pytorch >=2.11"} <= set(index["depends"])
    assert not [spec for spec in index["depends"] if spec.startswith("python_abi")]
    assert {path.split("/")[0] for path in one.files} == {"site-packages"}
    assert "site-packages/flash_attn_rocm/lib/libflash_attn_rocm.so" in one.files


def test_main_package_links_neither_rocm_nor_the_torch_cxx_abi(opened: dict[str, Opened]) -> None:
    library = opened["flash-attn-rocm"].root / "site-packages" / "flash_attn_rocm" / "lib" / "libflash_attn_rocm.so"
    with library.open("rb") as stream:
        elf = ELFFile(stream)
        needed = [tag.needed for tag in elf.get_section_by_name(".dynamic").iter_tags("DT_NEEDED")]
        undefined = [s.name for s in elf.get_section_by_name(".dynsym").iter_symbols() if s["st_shndx"] == "SHN_UNDEF"]
    assert not [name for name in needed if "hip" in name or "c10" in name or "python" in name]
    # Mangled names of libtorch's C++ API (namespaces at, c10) are what the stable ABI avoids.
    assert not [name for name in undefined if name.startswith(("_ZN2at", "_ZNK2at", "_ZN3c10", "_ZNK3c10"))]


def test_emulator_package_is_where_the_program_looks(opened: dict[str, Opened]) -> None:
    one = opened["flash-attn-rocm-emulator"]
    assert "lib/flash_attn_rocm/emulator/libamdhip64.so" in one.files
    assert any(spec.startswith("llvm-tools >=20") for spec in one.info("index")["depends"])
    assert not [spec for spec in one.info("index")["depends"] if "clang" in spec or "gxx" in spec]


def test_download_of_main_and_one_gpu_is_small(opened: dict[str, Opened], kernels: dict[str, Opened]) -> None:
    main = opened["flash-attn-rocm"].archive.stat().st_size
    for gfx, one in kernels.items():
        path = one.root / "share" / "flash_attn_rocm" / gfx / "kernels.json"
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if manifest["profile"] in ("smoke", "ci"):
            assert main + one.archive.stat().st_size < LIMIT_BYTES
