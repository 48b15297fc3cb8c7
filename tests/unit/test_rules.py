"""The rules that CK's static assertions and the GPU set, checked before a compiler runs."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from ck.rules import why_illegal
from ck.tiling import Tile
from ck.variants import Variant
from flash_attn_rocm.archs import load_arch

GFX1201 = load_arch("gfx1201")
D64 = Tile((64, 64, 32, 64, 32, 64), (4, 1, 1), (16, 16, 16))
PLAIN = Variant("fmha_fwd", 64, "bf16", "batch", False, "none", False, False, "none")


def test_upstream_tile_is_legal() -> None:
    assert why_illegal(GFX1201, PLAIN, D64) is None


@pytest.mark.parametrize(
    ("tile", "reason"),
    [
        (replace(D64, matrix=(32, 32, 16)), "gfx1201 .wmma. has no 32x32x16 matrix instruction"),
        (replace(D64, waves=(2, 2, 1)), "along query rows only"),
        (replace(D64, block=(48, 64, 32, 64, 32, 64)), "48 query rows are not a multiple of 4 waves of 16"),
        (replace(D64, block=(64, 40, 32, 64, 8, 64)), "keys per step 40 is not a multiple"),
        # static_assert(2 <= k0_loops) of CK's pipeline
        (replace(D64, block=(64, 64, 64, 64, 32, 64)), "at least two steps of the QK unroll 64"),
        (replace(D64, block=(64, 48, 32, 64, 32, 64)), "48 keys per step are not a multiple of the PV unroll 32"),
        # static_assert(kSubQKHeaddim <= 256)
        (replace(D64, block=(64, 64, 32, 512, 32, 512)), "powers of two up to 256"),
        (replace(D64, block=(64, 64, 16, 80, 32, 80)), "head dim 80"),
        (replace(D64, block=(1024, 64, 32, 64, 32, 64), waves=(64, 1, 1)), "64 waves of 32 lanes exceed 1024 threads"),
        (replace(D64, block=(64, 1024, 32, 64, 32, 64)), "bytes of LDS; gfx1201 gives a workgroup 64 KiB"),
        (replace(D64, block=(64, 64, 32, 128, 32, 128)), "covers head dims 128/128, the kernel is for 64"),
    ],
)
def test_illegal_tiles(tile: Tile, reason: str) -> None:
    got = why_illegal(GFX1201, PLAIN, tile)
    assert got is not None
    assert re.search(reason, got), got


@pytest.mark.parametrize(
    ("variant", "reason"),
    [
        (replace(PLAIN, mode="group"), "group mode"),
        (replace(PLAIN, softcap=True, bias="alibi"), "no softcap together with a bias"),
    ],
)
def test_illegal_features(variant: Variant, reason: str) -> None:
    assert reason in (why_illegal(GFX1201, variant, D64) or "")


# What clang says of these tiles: "static assertion failed" in amd_buffer_load_impl<unsigned short, 6>, and nothing of
# those that are legal here.
@pytest.mark.parametrize(
    ("gfx", "rows", "waves", "legal"),
    [
        ("gfx1201", 64, 4, False),
        ("gfx1201", 32, 2, True),
        ("gfx1100", 64, 4, False),
        ("gfx942", 32, 2, False),
        ("gfx942", 16, 1, True),
    ],
)
def test_loads_of_96_columns(gfx: str, rows: int, waves: int, legal: bool) -> None:
    tile = Tile((rows, 16, 32, 96, 16, 96), (waves, 1, 1), (16, 16, 16))
    variant = replace(PLAIN, op="fmha_fwd_splitkv", hdim=96, mode="group", padding="seqlen", page=16)
    reason = why_illegal(load_arch(gfx), variant, tile)
    assert reason is None if legal else "load 6 elements of V at once" in (reason or "")
    assert why_illegal(load_arch(gfx), replace(variant, padding="full"), tile) is None  # reads one at a time


def test_the_async_pipeline_takes_the_steps_whose_buffers_ck_names() -> None:
    """CK's own tile of d192 has others: the emulated GPU found that a write of V and a read of K race."""
    tile = replace(D64, matrix=(32, 32, 16), block=(128, 128, 32, 192, 32, 192), pipeline="async")
    variant = replace(PLAIN, hdim=192, padding="seqlen")
    assert "races in LDS with 6 and 4 steps; it takes ((2, 2)," in str(why_illegal(load_arch("gfx942"), variant, tile))
    assert why_illegal(load_arch("gfx942"), variant, replace(tile, pipeline="registers")) is None


def test_the_async_pipeline_needs_exact_head_dims() -> None:
    tile = replace(D64, matrix=(32, 32, 16), block=(128, 64, 32, 64, 32, 64), pipeline="async")
    assert why_illegal(load_arch("gfx942"), replace(PLAIN, padding="seqlen"), tile) is None
    assert "head dim is exact" in (why_illegal(load_arch("gfx942"), replace(PLAIN, padding="full"), tile) or "")


@pytest.mark.parametrize(
    "variant",
    [
        replace(PLAIN, mode="group", padding="seqlen", mask=True),
        replace(PLAIN, bias="alibi", mask=True),
        replace(PLAIN, softcap=True),
        replace(PLAIN, mode="group", padding="seqlen", mask=True, softcap=True, dropout=True),
    ],
)
def test_feature_combinations_that_compile(variant: Variant) -> None:
    assert why_illegal(GFX1201, variant, D64) is None
