"""Where binary parts are looked for: variables first, then the environment the package is installed in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flash_attn_rocm import paths
from flash_attn_rocm.cli import main
from flash_attn_rocm.errors import BackendChoiceError, LibraryNotFoundError

VARIABLES = ("KERNELS", "LIBRARY", "EMULATOR", "EMULATE", "HIP_LIBRARY")


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(f"FLASH_ATTN_ROCM_{name}", raising=False)


@pytest.mark.parametrize("site", ["lib/python3.12/site-packages", "Lib/site-packages"])
def test_the_prefix_is_the_parent_that_holds_our_data(tmp_path: Path, site: str) -> None:
    package = tmp_path / "env" / site / "flash_attn_rocm"
    package.mkdir(parents=True)
    (tmp_path / "env" / "share" / "flash_attn_rocm").mkdir(parents=True)
    assert paths.find_prefix(package, Path("/fallback")) == tmp_path / "env"


def test_without_data_the_prefix_is_the_fallback(tmp_path: Path) -> None:
    assert paths.find_prefix(tmp_path / "a" / "flash_attn_rocm", Path("/fallback")) == Path("/fallback")


def test_kernel_roots_from_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASH_ATTN_ROCM_KERNELS", os.pathsep.join(["/a", "", "/b"]))
    assert paths.kernel_roots() == (Path("/a"), Path("/b"))


def test_default_places_are_in_the_prefix() -> None:
    prefix = paths.prefix()
    assert paths.kernel_roots() == (prefix / "share" / "flash_attn_rocm",)
    assert paths.emulator_dir() == prefix / "lib" / "flash_attn_rocm" / "emulator"
    assert paths.library_path().parent == paths.PACKAGE_DIR / "lib"


def test_the_first_root_with_a_gpu_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for root, gfx in (("a", "gfx1201"), ("b", "gfx1201"), ("b", "gfx942")):
        (tmp_path / root / gfx).mkdir(parents=True)
        (tmp_path / root / gfx / "kernels.json").touch()
    monkeypatch.setenv("FLASH_ATTN_ROCM_KERNELS", f"{tmp_path / 'a'}{os.pathsep}{tmp_path / 'b'}")
    assert paths.find_manifests() == {
        "gfx1201": tmp_path / "a" / "gfx1201" / "kernels.json",
        "gfx942": tmp_path / "b" / "gfx942" / "kernels.json",
    }


def test_a_root_that_cannot_be_searched_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLASH_ATTN_ROCM_KERNELS", "/" + "x" * 5000)
    monkeypatch.setenv("FLASH_ATTN_ROCM_EMULATE", "gfx1201")
    message = r"kernel directory /x{199}\.\.\. cannot be searched: File name too long.*FLASH_ATTN_ROCM_KERNELS"
    with pytest.raises(BackendChoiceError, match=message):
        paths.find_manifests()
    assert main(["info"]) == 1
    assert "cannot be searched" in capsys.readouterr().out


def test_no_hip_library_is_named_without_reason() -> None:
    assert paths.hip_library_path() is None


def test_an_explicit_hip_library_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASH_ATTN_ROCM_EMULATE", "gfx1201")
    monkeypatch.setenv("FLASH_ATTN_ROCM_HIP_LIBRARY", "/x/libamdhip64.so")
    assert paths.hip_library_path() == Path("/x/libamdhip64.so")


def test_emulation_uses_the_installed_emulator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLASH_ATTN_ROCM_EMULATE", "gfx1201")
    monkeypatch.setenv("FLASH_ATTN_ROCM_EMULATOR", str(tmp_path))
    with pytest.raises(LibraryNotFoundError, match="conda install flash-attn-rocm-emulator"):
        paths.hip_library_path()
    (tmp_path / "libamdhip64.so").touch()
    assert paths.hip_library_path() == tmp_path / "libamdhip64.so"


def test_a_missing_host_library_says_how_to_reinstall(monkeypatch: pytest.MonkeyPatch) -> None:
    from flash_attn_rocm import ops

    monkeypatch.setattr(ops, "_library", None)
    monkeypatch.setenv("FLASH_ATTN_ROCM_LIBRARY", "/nowhere/libflash_attn_rocm.so")
    with pytest.raises(LibraryNotFoundError, match=r"host library /nowhere/libflash_attn_rocm.so: no such file.*conda"):
        ops.load()
