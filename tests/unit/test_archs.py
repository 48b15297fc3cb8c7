"""GPU tables: complete, strict, and found by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from flash_attn_rocm import archs
from flash_attn_rocm.archs import load_arch, load_archs, parse_arch
from flash_attn_rocm.errors import ArchTableError, UnsupportedGpuError

TABLES = sorted(Path(archs.__file__).parent.glob("gfx*.toml"))
GFX1201 = next(path for path in TABLES if path.stem == "gfx1201").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_every_table_is_valid(path: Path) -> None:
    arch = parse_arch(path)
    assert arch.gfx == path.stem
    assert arch.wave_size in (32, 64)
    assert arch.products


def test_rdna4_facts() -> None:
    """From AMD's RDNA 4 ISA guide: wave32, 64 KiB of LDS for a workgroup, 256 VGPRs."""
    arch = load_arch("gfx1201")
    assert (arch.wave_size, arch.lds_kib, arch.vgprs, arch.matrix) == (32, 64, 256, "wmma")


def test_feature_suffixes_are_ignored() -> None:
    assert load_arch("gfx1201:sramecc+") is load_archs()["gfx1201"]


def test_an_unknown_gpu_lists_the_supported_ones() -> None:
    with pytest.raises(UnsupportedGpuError, match=r"'gfx1' is not supported; supported: .*gfx1201"):
        load_arch("gfx1")
    with pytest.raises(
        UnsupportedGpuError, match=r"^--emulate: GPU 'gfx1' .* Give --emulate one of these, or leave it"
    ):
        load_arch("gfx1", "--emulate")  # where torch's own attention is of no help


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("wave_size = 32", 'wave_size = "32"'), "wave_size is '32'; expected int"),
        (("wave_size = 32", "wave_size = true"), "wave_size is True; expected int"),
        (("head_grouping = true", "head_grouping = 1"), "head_grouping is 1; expected bool"),
        (("wave_size = 32", "waves = 32"), "unknown keys \\['waves'\\]"),
        (("lds_kib = 64", "# lds_kib"), "missing keys \\['lds_kib'\\]"),
        (('forward = "ck"', 'forward = "triton"'), "backend.forward is 'triton'"),
        (('gfx = "gfx1201"', 'gfx = "gfx1200"'), "expected 'gfx1201', the file's name"),
        (('gfx = "gfx1201"', "gfx ="), "not valid TOML"),
    ],
)
def test_a_malformed_table_says_what_is_wrong(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    assert change[0] in GFX1201
    path = tmp_path / "gfx1201.toml"
    path.write_text(GFX1201.replace(*change, 1), encoding="utf-8")
    with pytest.raises(ArchTableError, match=message):
        parse_arch(path)
