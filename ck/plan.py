"""From tables to kernels: KernelSpecs for each GPU, grouped into translation units of one dtype and head dim."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ck.bwd_tiling import BwdTile
from ck.errors import PlanError, RequestError
from ck.rules import why_illegal
from ck.tiling import Tile, load_tiles, tile_for
from ck.variants import PLAIN_OPS, TILED_OPS, Variant, VariantTable, load_variants
from flash_attn_rocm.archs import Arch

# The front end's share of a translation unit is paid once: 16 kernels in one file cost 13 CPU-s each, alone 40-60.
# More than 16 saves little and takes more memory and a longer unsplittable job.
MAX_UNIT_KERNELS = 16
# A backward kernel takes 16 CPU-s itself, so that little is saved by more of them in one file.
MAX_BWD_UNIT_KERNELS = 4


@dataclass(frozen=True)
class KernelSpec:
    """One kernel of one GPU. It owns the kernel's name, which nothing else builds or parses."""

    gfx: str
    variant: Variant
    tile: Tile | BwdTile | None  # None: a kernel of our own, without tiles

    @property
    def name(self) -> str:
        """The kernel's symbol, e.g. fmha_fwd_gfx1201_bf16_d128_batch_mask_pseqlen."""
        v = self.variant
        if self.tile is None:
            return "_".join((v.op, self.gfx, v.dtype))
        features = [
            ("mask", v.mask),
            ("alibi", v.bias == "alibi"),
            ("softcap", v.softcap),
            ("dropout", v.dropout),
            (f"page{v.page}", v.page > 0),
            ("deterministic", v.deterministic),
        ]
        parts = [v.op, self.gfx, v.dtype, f"d{v.hdim}", v.mode, *(word for word, on in features if on), f"p{v.padding}"]
        return "_".join(parts)


@dataclass(frozen=True)
class Unit:
    """One translation unit: kernels of one GPU, dtype and head dim, compiled into one code object."""

    name: str
    gfx: str
    specs: tuple[KernelSpec, ...]

    @property
    def source_name(self) -> str:
        """File name of the rendered source."""
        return f"{self.name}.hip"

    @property
    def object_name(self) -> str:
        """File name of the code object."""
        return f"{self.name}.co"


def choose_hdims(table: VariantTable, profile: str, wanted: Collection[int] | None) -> tuple[int, ...]:
    """The head dims to build: all of the profile's, or the wanted ones.

    Raises:
        RequestError: a wanted head dim has no kernels in the profile.
    """
    offered = sorted({variant.hdim for variant in table.of_profile(profile) if variant.op in TILED_OPS})
    for hdim in wanted or ():
        if hdim not in offered:
            raise RequestError("head dim", hdim, offered, f"These are the head dims of profile {profile!r} (OPT_DIM).")
    return tuple(sorted(wanted)) if wanted else tuple(offered)


def plan_specs(arch: Arch, variants: Iterable[Variant]) -> tuple[KernelSpec, ...]:
    """One KernelSpec per variant, in the variants' order; none where the GPU's family goes without.

    Raises:
        PlanError: the GPU family has no tile for a variant, or the combination is illegal.
    """
    tiles = load_tiles(arch.family)
    specs = []
    for variant in variants:
        if variant.op in PLAIN_OPS:
            specs.append(KernelSpec(arch.gfx, variant, None))
            continue
        if (variant.op, variant.hdim) in tiles.without:
            continue
        tile = tile_for(tiles, variant, arch.transposed_loads)
        if tile is None:
            label = f"{variant.op} {variant.dtype} d{variant.hdim} padding {variant.padding} for {arch.gfx}"
            raise PlanError(label, f"ck/tiles/{arch.family}.toml has no tile for it")
        spec = KernelSpec(arch.gfx, variant, tile)
        if reason := why_illegal(arch, variant, tile):
            raise PlanError(spec.name, reason)
        specs.append(spec)
    return tuple(specs)


def _group_key(spec: KernelSpec) -> tuple[str, str, int]:
    # Our own kernels are small: one file per dtype holds them all.
    op = "plain" if spec.tile is None else spec.variant.op
    return (op, spec.variant.dtype, spec.variant.hdim)


def _sort_key(spec: KernelSpec) -> tuple[Tile | BwdTile | tuple[()], Variant]:
    return (spec.tile or (), spec.variant)


def group_specs(specs: Iterable[KernelSpec], limit: int = MAX_UNIT_KERNELS) -> tuple[Unit, ...]:
    """Cut one GPU's kernels into translation units of at most `limit` kernels (backward: fewer), of nearly equal size.

    Kernels of one tile stay together where they can: they share the most template instantiations. The cut depends on
    the kernels alone, never on the machine, so the same code objects come out everywhere.
    """
    units = []
    for (op, dtype, hdim), members in itertools.groupby(sorted(specs, key=_group_key), key=_group_key):
        group = sorted(members, key=_sort_key)
        count = -(-len(group) // (min(limit, MAX_BWD_UNIT_KERNELS) if op == "fmha_bwd" else limit))
        for index in range(count):
            part = tuple(group[len(group) * index // count : len(group) * (index + 1) // count])
            suffix = f"_{index}" if count > 1 else ""
            size = "" if part[0].tile is None else f"_d{hdim}"
            units.append(Unit(f"{op}_{part[0].gfx}_{dtype}{size}{suffix}", part[0].gfx, part))
    return tuple(sorted(units, key=lambda unit: unit.name))


def plan_units(
    arch: Arch, profile: str, hdims: Collection[int] | None = None, table: VariantTable | None = None
) -> tuple[Unit, ...]:
    """Every translation unit of one GPU in a profile, optionally for some head dims only.

    Raises:
        RequestError: no such profile or head dim.
        PlanError: a row of the tables cannot be built for this GPU.
    """
    table = table or load_variants()
    chosen = choose_hdims(table, profile, hdims)
    wanted = (v for v in table.of_profile(profile, arch.gfx) if v.op in PLAIN_OPS or v.hdim in chosen)
    return group_specs(plan_specs(arch, wanted))
