"""Is a kernel legal? What CK's pipeline and the GPU require of (GPU, variant, tile), checked before a compiler runs."""

from __future__ import annotations

from ck.bwd_rules import BYTES_PER_ELEMENT, MAX_BLOCK_THREADS, why_bwd_illegal
from ck.bwd_tiling import BwdTile
from ck.tiling import Tile
from ck.variants import Variant
from flash_attn_rocm.archs import Arch

# Matrix instruction shapes CK uses for 16-bit inputs: RDNA 4 ISA guide 7.9 (WMMA), CDNA 3 ISA guide 7 (MFMA).
_MATRIX_SHAPES: dict[str, tuple[tuple[int, int, int], ...]] = {
    "wmma": ((16, 16, 16),),
    "mfma": ((16, 16, 16), (16, 16, 32), (32, 32, 8), (32, 32, 16)),
}
_MAX_HDIM = 256
# 16-bit elements that CK's buffer loads take at once, 16 bytes at most (ck_tile/core/arch/amd_buffer_addressing.hpp).
_LOADS = (1, 2, 4, 8)
# Steps of the async pipeline (along the head dim in Q K^T, along the keys in P V) for which CK names the order of its
# three buffers in LDS (LdsBufferSequence). For others a formula gives the first V the buffer of the last K where both
# counts are what d192 has, 6 and 4: no barrier is between them, so that waves overwrite K that others still read.
_ASYNC_STEPS = ((2, 2), (2, 4), (3, 3), (3, 4), (4, 2), (4, 4))
# Head dims for which CK's shape knows a tile length (ceil_to_qualified_tile_length).
_ODD_HDIMS = (48, 96, 160, 192)


def why_illegal(arch: Arch, variant: Variant, tile: Tile | BwdTile) -> str | None:
    """None when the kernel can be built, else the reason in words."""
    if isinstance(tile, BwdTile):
        return why_bwd_illegal(arch, variant, tile)
    if variant.deterministic:
        return "only backward kernels differ by determinism"
    return _check_tile(arch, tile) or _check_features(variant, tile) or _check_loads(arch, variant, tile)


def _check_tile(arch: Arch, tile: Tile) -> str | None:
    m0, n0, k0, n1, k1, hdim = tile.block
    wave_m, wave_n, wave_k = tile.waves
    m, n, k = tile.matrix
    shapes = _MATRIX_SHAPES.get(arch.matrix, ())
    if tile.matrix not in shapes:
        return f"{arch.gfx} ({arch.matrix}) has no {m}x{n}x{k} matrix instruction; it has {shapes}"
    if (wave_n, wave_k) != (1, 1):
        return f"waves {tile.waves}: the pipeline splits a workgroup along query rows only"
    if m0 % (m * wave_m):
        return f"{m0} query rows are not a multiple of {wave_m} waves of {m}"
    for what, size, step in (
        ("keys per step", n0, n),
        ("output columns", n1, n),
        ("QK unroll", k0, k),
        ("PV unroll", k1, k),
    ):
        if size % step:
            return f"{what} {size} is not a multiple of the matrix instruction's {step}"
    if hdim % k0 or hdim // k0 < 2:
        return f"head dim {hdim} must be at least two steps of the QK unroll {k0}"
    if n0 % k1:
        return f"{n0} keys per step are not a multiple of the PV unroll {k1}"
    if hdim > _MAX_HDIM or not (hdim in _ODD_HDIMS or hdim & (hdim - 1) == 0):
        return f"head dim {hdim}: CK's pipeline takes powers of two up to {_MAX_HDIM} and {_ODD_HDIMS}"
    if tile.pipeline == "async" and (hdim // k0, n0 // k1) not in _ASYNC_STEPS:
        return f"the async pipeline races in LDS with {hdim // k0} and {n0 // k1} steps; it takes {_ASYNC_STEPS}"
    if tile.wave_count * arch.wave_size > MAX_BLOCK_THREADS:
        return f"{tile.wave_count} waves of {arch.wave_size} lanes exceed {MAX_BLOCK_THREADS} threads"
    # K and V take turns in LDS; padding against bank conflicts adds less than an eighth.
    lds_bytes = max(n0 * k0, n1 * k1) * BYTES_PER_ELEMENT * 9 // 8
    if lds_bytes > arch.lds_kib * 1024:
        return f"needs about {lds_bytes} bytes of LDS; {arch.gfx} gives a workgroup {arch.lds_kib} KiB"
    return None


def _check_features(variant: Variant, tile: Tile) -> str | None:
    if variant.op == "fmha_fwd_splitkv":
        if variant.mode != "group" or variant.padding == "none":
            return "split-KV kernels are group mode with padding seqlen or full"
        if variant.dropout:
            return "CK's split-KV pipeline has no dropout"
        if variant.page and variant.page % tile.n:
            return f"{tile.n} keys per step would cross a page boundary: pages are multiples of {variant.page} rows"
    elif variant.page:
        return "only split-KV kernels read keys in pages"
    if (tile.hdim_q, tile.hdim_v) != (variant.hdim, variant.hdim):
        return f"the tile covers head dims {tile.hdim_q}/{tile.hdim_v}, the kernel is for {variant.hdim}"
    if variant.mode == "group" and variant.padding == "none":
        return "group mode cannot know that every sequence is a multiple of the tile; use padding seqlen or full"
    if tile.pipeline != "registers" and (variant.op != "fmha_fwd" or variant.padding == "full"):
        return f"the {tile.pipeline} pipeline loads 8 elements at a time: only forward kernels whose head dim is exact"
    if variant.softcap and variant.bias != "none":
        return "CK's pipeline has no softcap together with a bias"
    return None


def _check_loads(arch: Arch, variant: Variant, tile: Tile) -> str | None:
    """V's rows are cut into loads of what a lane holds of a step, or of half of that (GetAlignmentV of CK's policy)."""
    if tile.pipeline != "registers" or variant.padding == "full":  # element by element
        return None
    _, _, _, n1, k1, _ = tile.block
    per_lane = n1 * k1 // (tile.wave_count * arch.wave_size)
    longest = min(per_lane, _LOADS[-1])
    load = longest if per_lane >= 2 * longest else per_lane // 2
    if load not in _LOADS:
        return f"a lane would load {load} elements of V at once; CK has loads of {_LOADS}: change the waves"
    return None
