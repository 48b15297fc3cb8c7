"""The tile tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ck.errors import TableError
from ck.plan import plan_specs
from ck.tiling import load_tiles, parse_tiles, tile_for
from ck.variants import Variant
from flash_attn_rocm.archs import load_arch, load_archs

ROW = """
[[tiles]]
op = "fmha_fwd"
dtypes = ["bf16"]
hdim = 64
paddings = ["none"]
block = [64, 64, 32, 64, 32, 64]
waves = [4, 1, 1]
matrix = [16, 16, 16]
why = "a test"
"""
TABLE = 'schema = 1\nfamily = "gfx12"\n' + ROW


def load(tmp_path: Path, text: str):
    path = tmp_path / "gfx12.toml"
    path.write_text(text)
    return parse_tiles(path)


def variant(hdim: int, padding: str) -> Variant:
    return Variant("fmha_fwd", hdim, "bf16", "batch", False, "none", False, False, padding)


# CK's own factory for gfx12: 64 query rows, 64 keys, four waves, 16x16x16 WMMA for every head dim.
@pytest.mark.parametrize(("hdim", "k0"), [(32, 16), (64, 32), (128, 32)])
def test_exact_head_dims_use_upstream_tiles(hdim: int, k0: int) -> None:
    tile = tile_for(load_tiles("gfx12"), variant(hdim, "none"))
    assert tile is not None
    assert tile.block == (64, 64, k0, hdim, 32, hdim)
    assert (tile.waves, tile.matrix, tile.wave_count) == ((4, 1, 1), (16, 16, 16), 4)


def test_padded_d128_takes_half_the_keys_because_64_spill() -> None:
    tile = tile_for(load_tiles("gfx12"), variant(128, "full"))
    assert tile is not None
    assert (tile.m, tile.n, tile.hdim_q, tile.hdim_v) == (64, 32, 128, 128)


def test_every_gpu_family_has_a_table() -> None:
    for arch in load_archs().values():
        assert load_tiles(arch.family)


@pytest.mark.parametrize("hdim", [64, 128])
def test_plain_kernels_read_lds_transposed_where_the_gpu_can(hdim: int) -> None:
    """CK's own factory for gfx950: for equal lengths without bias, soft cap and dropout, d64 and d128 only."""
    gfx9 = load_tiles("gfx9")
    plain = variant(hdim, "seqlen")
    pipelines = {
        features: tile_for(gfx9, replace(plain, **dict(features)), transposed_loads=True)
        for features in ((), (("mode", "group"),), (("bias", "alibi"),), (("softcap", True),), (("dropout", True),))
    }
    assert {features: tile.pipeline for features, tile in pipelines.items()} == {
        features: "async" if features else "transposed" for features in pipelines
    }
    assert tile_for(gfx9, plain).pipeline == "async"
    assert tile_for(gfx9, replace(plain, hdim=32), transposed_loads=True).pipeline == "async"


def test_a_family_may_go_without_a_head_dim() -> None:
    deep = Variant("fmha_bwd", 256, "bf16", "batch", False, "none", False, False, "seqlen")
    assert plan_specs(load_arch("gfx1100"), [deep]) == ()
    assert len(plan_specs(load_arch("gfx1100"), [replace(deep, hdim=128)])) == 1
    assert len(plan_specs(load_arch("gfx942"), [deep])) == 1


def test_unknown_head_dim_has_no_tile() -> None:
    assert tile_for(load_tiles("gfx12"), variant(40, "none")) is None


def test_unknown_family_names_the_known_ones() -> None:
    with pytest.raises(TableError, match=r"'gfx7'.*gfx12"):
        load_tiles("gfx7")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (ROW, ROW + ROW, "row 2: a second tile"),
        ('why = "a test"', 'why = "a test"\nstages = 2', "unknown keys .'stages'"),
        ("hdim = 64", "hdim = true", "hdim is True"),
        ("waves = [4, 1, 1]", "waves = [4, 1]", "expected 3 positive integers"),
        ("block = [64, 64", "block = [-64, 64", "expected 6 positive integers"),
        ('paddings = ["none"]', 'paddings = ["some"]', "paddings is .'some'"),
        ('why = "a test"', 'why = "a test"\npipeline = "fast"', "pipeline is 'fast'; allowed: .'registers', 'async'"),
        ('family = "gfx12"', 'family = "gfx11"', "family 'gfx11'; expected 1 and 'gfx12'"),
        (ROW, ROW + '[[without]]\nop = "gemm"\nhdims = [64]\nwhy = ""\n', "row 1: op is 'gemm'; allowed"),
        (ROW, ROW + '[[without]]\nop = "fmha_bwd"\nhdims = ["64"]\nwhy = ""\n', "hdims has .'64'"),
    ],
)
def test_bad_tables_are_rejected(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in TABLE
    with pytest.raises(TableError, match=message):
        load(tmp_path, TABLE.replace(old, new))
