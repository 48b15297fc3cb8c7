"""Is a backward kernel legal? What CK's backward pipelines and the GPU require, checked before a compiler runs."""

from __future__ import annotations

from ck.bwd_tiling import BwdTile
from ck.variants import Variant
from flash_attn_rocm.archs import Arch

BYTES_PER_ELEMENT = 2
_PACK = 8  # elements that a lane moves at once
_WIDE_COLUMNS = 64  # columns of the head dim that 8 lanes bring to LDS at once
_MATRIX_EDGE = 16  # the policy moves P and dS in tiles of this edge
MAX_BLOCK_THREADS = 1024


def why_bwd_illegal(arch: Arch, variant: Variant, tile: BwdTile) -> str | None:
    """None when the kernel can be built, else the reason in words."""
    return _check_waves(arch, tile) or _check_memory(arch, tile) or _check_features(variant, tile)


def _check_waves(arch: Arch, tile: BwdTile) -> str | None:
    queries, keys, depth, hdim = tile.block
    if tile.matrix != (_MATRIX_EDGE,) * 3:
        return f"{arch.gfx} ({arch.matrix}), matrix {tile.matrix}: backward tiles are made of 16x16x16 instructions"
    counts = {pair[0] * pair[1] for pair in (tile.score_waves, tile.key_waves, tile.query_waves)}
    if len(counts) != 1:
        return f"the products have different numbers of waves: {sorted(counts)}"
    for what, size, waves in (
        ("query rows", queries, tile.score_waves[0]),
        ("keys", keys, tile.score_waves[1]),
        ("keys", keys, tile.key_waves[0]),
        ("head dim", hdim, tile.key_waves[1]),
        ("query rows", queries, tile.query_waves[0]),
        ("head dim", hdim, tile.query_waves[1]),
        ("dQ unroll", depth, 1),
    ):
        if size % (_MATRIX_EDGE * waves):
            return f"{what} {size} is not a multiple of {waves} waves of {_MATRIX_EDGE}"
    lanes = tile.wave_count * arch.wave_size
    if tile.pipeline == "wide" and (hdim % _WIDE_COLUMNS or queries * _PACK % lanes):
        return f"{lanes} lanes cannot bring {queries} rows of d{hdim} to LDS in whole parts"
    if keys % depth:
        return f"{keys} keys are not a multiple of the dQ unroll {depth}"
    if lanes > MAX_BLOCK_THREADS:
        return f"{tile.wave_count} waves of {arch.wave_size} lanes exceed {MAX_BLOCK_THREADS} threads"
    return None


def _check_memory(arch: Arch, tile: BwdTile) -> str | None:
    queries, keys, _, hdim = tile.block
    if tile.pipeline == "wide":
        # Q, dO and dS, and the exchanges of P and dS, each with 16 bytes more a row.
        rows = 2 * queries * (hdim + _PACK) + queries * (keys + _PACK) + 2 * keys * (queries + _PACK)
    else:
        # K twice before the loop; Q and dO twice each, dS and the exchange of P in it.
        rows = max(2 * keys * hdim, 4 * queries * hdim + 2 * queries * keys)
    lds_bytes = rows * BYTES_PER_ELEMENT
    if lds_bytes > arch.lds_kib * 1024:
        return f"needs about {lds_bytes} bytes of LDS; {arch.gfx} gives a workgroup {arch.lds_kib} KiB"
    return None


def _check_features(variant: Variant, tile: BwdTile) -> str | None:
    if tile.hdim_q != variant.hdim:
        return f"the tile covers head dim {tile.hdim_q}, the kernel is for {variant.hdim}"
    if variant.softcap:
        return "CK's backward has no softcap"
    if variant.page:
        return "only split-KV kernels read keys in pages"
    if variant.padding == "none":
        return "backward kernels take any length; use padding seqlen or full"
    return None
