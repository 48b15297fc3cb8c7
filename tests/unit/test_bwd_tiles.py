"""Backward tiles: what the table's reader and the rules let pass."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ck.bwd_rules import why_bwd_illegal
from ck.bwd_tiling import BwdTile, parse_bwd_tiles
from ck.errors import TableError
from ck.tiling import load_tiles
from ck.variants import Variant
from flash_attn_rocm.archs import load_arch

ROW = {
    "dtypes": ["bf16"],
    "hdim": 64,
    "paddings": ["seqlen"],
    "block": [32, 64, 32, 64],
    "score_waves": [2, 4],
    "key_waves": [2, 4],
    "query_waves": [2, 4],
    "matrix": [16, 16, 16],
    "prefetch": True,
    "why": "a test",
}
TILE = BwdTile((32, 64, 32, 64), (2, 4), (2, 4), (2, 4), (16, 16, 16), True)
WIDE = BwdTile((32, 64, 16, 256), (2, 4), (2, 4), (1, 8), (16, 16, 16), False, "wide")
WIDER = BwdTile((32, 128, 16, 256), (2, 8), (2, 8), (1, 16), (16, 16, 16), False, "wide")
VARIANT = Variant("fmha_bwd", 64, "bf16", "batch", False, "none", False, False, "seqlen")


def test_a_row_becomes_a_tile() -> None:
    assert parse_bwd_tiles([ROW], Path("x.toml")) == {("bf16", 64, "seqlen"): TILE}
    assert (TILE.m, TILE.n, TILE.hdim_q, TILE.wave_count) == (32, 64, 64, 8)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([ROW, ROW], "row 2: a second tile"),
        ([{**ROW, "block": [32, 64, 32]}], "block is .* expected 4 positive integers"),
        ([{**ROW, "paddings": ["none", "other"]}], "paddings is"),
        ([{**ROW, "colour": "red"}], "unknown keys"),
        ([{**ROW, "pipeline": "async"}], "pipeline is 'async'; allowed: .*wide"),
        ([{**ROW, "pipeline": "wide"}], "prefetch is true; pipeline 'wide' never prefetches: give false"),
    ],
)
def test_malformed_rows_are_rejected(rows: list[dict[str, object]], message: str) -> None:
    with pytest.raises(TableError, match=message):
        parse_bwd_tiles(list(rows), Path("x.toml"))


@pytest.mark.parametrize(
    ("tile", "variant", "message"),
    [
        (TILE, VARIANT, None),
        (replace(TILE, query_waves=(1, 8)), VARIANT, "head dim 64 is not a multiple of 8 waves"),
        (replace(TILE, key_waves=(4, 1)), VARIANT, "different numbers of waves"),
        (replace(TILE, block=(32, 64, 48, 64)), VARIANT, "64 keys are not a multiple of the dQ unroll 48"),
        (replace(TILE, matrix=(32, 32, 8)), VARIANT, "16x16x16 instructions"),
        (replace(TILE, block=(32, 64, 32, 512)), replace(VARIANT, hdim=512), "bytes of LDS"),
        (TILE, replace(VARIANT, hdim=128), "the kernel is for 128"),
        (TILE, replace(VARIANT, softcap=True), "no softcap"),
        (TILE, replace(VARIANT, padding="none"), "any length"),
        (WIDE, replace(VARIANT, hdim=256), None),
        (replace(WIDE, pipeline="registers"), replace(VARIANT, hdim=256), "bytes of LDS"),
        (replace(WIDE, block=(64, 64, 16, 256)), replace(VARIANT, hdim=256), "bytes of LDS"),
        (WIDER, replace(VARIANT, hdim=256), "512 lanes cannot bring 32 rows of d256"),
    ],
)
def test_rules_say_why_a_kernel_cannot_be(tile: BwdTile, variant: Variant, message: str | None) -> None:
    reason = why_bwd_illegal(load_arch("gfx1201"), variant, tile)
    assert (reason is None) if message is None else (message in (reason or ""))


def test_every_tile_of_gfx12_is_legal() -> None:
    for (dtype, hdim, padding), tile in load_tiles("gfx12").backward.items():
        variant = replace(VARIANT, dtype=dtype, hdim=hdim, padding=padding)
        assert why_bwd_illegal(load_arch("gfx1201"), variant, tile) is None, (dtype, hdim, padding)
