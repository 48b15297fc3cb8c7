"""Read ck/tiles/<family>.toml: the tile of each (op, dtype, head dim, padding) on a GPU family."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ck.bwd_tiling import BwdTile, BwdTileTable, bwd_tile_for, parse_bwd_tiles
from ck.errors import TableError, check_keys
from ck.table_rows import add_tile, check_served, read_ints
from ck.variants import TILED_OPS, Variant

TILES_DIR = Path(__file__).parent / "tiles"
_ROW_KEYS: dict[str, type | tuple[type, ...]] = {
    "op": str,
    "dtypes": list,
    "hdim": int,
    "paddings": list,
    "page": int,
    "block": list,
    "waves": list,
    "matrix": list,
    "pipeline": str,
    "why": str,
}
_OPTIONAL = ("bwd_tiles", "without")
# CK's pipelines: "registers" (QRKSVS) brings K and V through registers into LDS, "async" (QRKSVSAsync) K directly, and
# "transposed" (QRKSVSAsyncTrload) Q, K and V, which it transposes as it reads LDS.
PIPELINES = ("registers", "async", "transposed")


@dataclass(frozen=True, order=True)
class Tile:
    """Numbers of CK's TileFmhaShape: block is (m0, n0, k0, n1, k1, head dim), waves and matrix are (m, n, k).

    The pipeline is one of PIPELINES.
    """

    block: tuple[int, int, int, int, int, int]
    waves: tuple[int, int, int]
    matrix: tuple[int, int, int]
    pipeline: str = "registers"

    @property
    def m(self) -> int:
        """Query rows of one workgroup."""
        return self.block[0]

    @property
    def n(self) -> int:
        """Keys of one main-loop step."""
        return self.block[1]

    @property
    def hdim_v(self) -> int:
        """Output columns of one workgroup."""
        return self.block[3]

    @property
    def hdim_q(self) -> int:
        """Head dim of q and k that the tile covers."""
        return self.block[5]

    @property
    def wave_count(self) -> int:
        """Waves of one workgroup."""
        return self.waves[0] * self.waves[1] * self.waves[2]


# By op, dtype, head dim, padding, page, and whether the tile's pipeline is "transposed".
TileTable = dict[tuple[str, str, int, str, int, bool], Tile]


def _add_row(table: TileTable, row: Any, where: str, path: Path) -> None:
    checked: dict[str, Any] = check_keys(row, _ROW_KEYS, path, where, optional=("page", "pipeline"))
    check_served(checked, where, path)
    if checked["op"] not in TILED_OPS:
        raise TableError(path, f"{where}: op is {checked['op']!r}; allowed: {list(TILED_OPS)}")
    b, w, x = (read_ints(checked, k, n, where, path) for k, n in (("block", 6), ("waves", 3), ("matrix", 3)))
    pipeline = checked.get("pipeline", PIPELINES[0])
    if pipeline not in PIPELINES:
        raise TableError(path, f"{where}: pipeline is {pipeline!r}; allowed: {list(PIPELINES)}")
    tile = Tile((b[0], b[1], b[2], b[3], b[4], b[5]), (w[0], w[1], w[2]), (x[0], x[1], x[2]), pipeline)
    served = (
        (checked["op"], dtype, checked["hdim"], padding, checked.get("page", 0), pipeline == "transposed")
        for dtype in checked["dtypes"]
        for padding in checked["paddings"]
    )
    add_tile(table, tile, served, where, path)


@dataclass(frozen=True)
class FamilyTiles:
    """The tiles of one GPU family: forward and backward, and the ops and head dims that it goes without."""

    forward: TileTable
    backward: BwdTileTable
    without: frozenset[tuple[str, int]] = frozenset()


def _without(row: Any, index: int, path: Path) -> list[tuple[str, int]]:
    where = f"[[without]] row {index}"
    checked: dict[str, Any] = check_keys(row, {"op": str, "hdims": list, "why": str}, path, where)
    if checked["op"] not in TILED_OPS:
        raise TableError(path, f"{where}: op is {checked['op']!r}; allowed: {list(TILED_OPS)}")
    if bad := [hdim for hdim in checked["hdims"] if type(hdim) is not int]:
        raise TableError(path, f"{where}: hdims has {bad}; expected integers")
    return [(checked["op"], hdim) for hdim in checked["hdims"]]


def parse_tiles(path: Path) -> FamilyTiles:
    """Read one family's tiles.

    Raises:
        TableError: a row is malformed, or two rows give a tile for the same kernel.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise TableError(path, f"not valid TOML: {error}") from error
    lists = dict.fromkeys(("tiles", *_OPTIONAL), list)
    top: dict[str, Any] = check_keys(
        document, {"schema": int, "family": str, **lists}, path, "top level", optional=_OPTIONAL
    )
    if (top["schema"], top["family"]) != (1, path.stem):
        raise TableError(path, f"schema {top['schema']}, family {top['family']!r}; expected 1 and {path.stem!r}")
    table: TileTable = {}
    for index, row in enumerate(top["tiles"], start=1):
        _add_row(table, row, f"[[tiles]] row {index}", path)
    without = [row for index, row in enumerate(top.get("without", []), start=1) for row in _without(row, index, path)]
    return FamilyTiles(table, parse_bwd_tiles(top.get("bwd_tiles", []), path), frozenset(without))


@cache
def load_tiles(family: str, directory: Path = TILES_DIR) -> FamilyTiles:
    """The tiles of a GPU family.

    Raises:
        TableError: the family has no table.
    """
    path = directory / f"{family}.toml"
    if not path.exists():
        have = sorted(p.stem for p in directory.glob("*.toml"))
        raise TableError(path, f"no tile table for GPU family {family!r}; there are tables for {have}")
    return parse_tiles(path)


def _is_plain(variant: Variant) -> bool:
    features = variant.bias != "none" or variant.softcap or variant.dropout
    return (variant.op, variant.mode) == ("fmha_fwd", "batch") and not features


def tile_for(tiles: FamilyTiles, variant: Variant, transposed_loads: bool = False) -> Tile | BwdTile | None:
    """The tile of one variant, or None when the family has none for it.

    Args:
        tiles: the family's.
        variant: the kernel.
        transposed_loads: the GPU reads LDS transposed: plain kernels get a tile of that pipeline if there is one.
    """
    if variant.op == "fmha_bwd":
        return bwd_tile_for(tiles.backward, variant)
    key = (variant.op, variant.dtype, variant.hdim, variant.padding, variant.page)
    found = tiles.forward.get((*key, True)) if transposed_loads and _is_plain(variant) else None
    return found or tiles.forward.get((*key, False))
