"""The [[bwd_tiles]] of ck/tiles/<family>.toml: how CK's backward kernel is cut for each dtype, head dim and padding."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ck.errors import TableError, check_keys
from ck.table_rows import add_tile, check_served, read_ints
from ck.variants import Variant

_ROW_KEYS: dict[str, type | tuple[type, ...]] = {
    "dtypes": list,
    "hdim": int,
    "paddings": list,
    "block": list,
    "score_waves": list,
    "key_waves": list,
    "query_waves": list,
    "matrix": list,
    "prefetch": bool,
    "pipeline": str,
    "why": str,
}
# "registers": CK's, where waves hold K and V in registers; "wide": ours (csrc/device/fmha_bwd_wide.hpp)
BWD_PIPELINES = ("registers", "wide")


@dataclass(frozen=True, order=True)
class BwdTile:
    """One workgroup's share: block is (query rows of a step, keys, dQ unroll, head dim).

    Waves lie along (queries, keys) in S = Q K^T and dP = dO V^T, (keys, head dim) in dV and dK, and (queries, head dim)
    in dQ. The pipeline is one of BWD_PIPELINES.
    """

    block: tuple[int, int, int, int]
    score_waves: tuple[int, int]
    key_waves: tuple[int, int]
    query_waves: tuple[int, int]
    matrix: tuple[int, int, int]
    prefetch: bool
    pipeline: str = "registers"

    @property
    def m(self) -> int:
        """Query rows of one main-loop step."""
        return self.block[0]

    @property
    def n(self) -> int:
        """Keys of one workgroup."""
        return self.block[1]

    @property
    def hdim_q(self) -> int:
        """Head dim of q and k that the tile covers."""
        return self.block[3]

    @property
    def hdim_v(self) -> int:
        """Head dim of v that the tile covers."""
        return self.block[3]

    @property
    def wave_count(self) -> int:
        """Waves of one workgroup."""
        return self.score_waves[0] * self.score_waves[1]


BwdTileTable = dict[tuple[str, int, str], BwdTile]


def _pair(row: dict[str, Any], key: str, where: str, path: Path) -> tuple[int, int]:
    first, second = read_ints(row, key, 2, where, path)
    return first, second


def parse_bwd_tiles(rows: list[Any], path: Path) -> BwdTileTable:
    """Read the rows of one family.

    Raises:
        TableError: a row is malformed, or two rows give a tile for the same kernel.
    """
    table: BwdTileTable = {}
    for index, row in enumerate(rows, start=1):
        where = f"[[bwd_tiles]] row {index}"
        checked: dict[str, Any] = check_keys(row, _ROW_KEYS, path, where, optional=("pipeline",))
        check_served(checked, where, path)
        m, n, depth, hdim = read_ints(checked, "block", 4, where, path)
        x, y, z = read_ints(checked, "matrix", 3, where, path)
        pipeline = checked.get("pipeline", BWD_PIPELINES[0])
        if pipeline not in BWD_PIPELINES:
            raise TableError(path, f"{where}: pipeline is {pipeline!r}; allowed: {list(BWD_PIPELINES)}")
        if checked["prefetch"] and pipeline != "registers":
            raise TableError(path, f"{where}: prefetch is true; pipeline {pipeline!r} never prefetches: give false")
        tile = BwdTile(
            (m, n, depth, hdim),
            _pair(checked, "score_waves", where, path),
            _pair(checked, "key_waves", where, path),
            _pair(checked, "query_waves", where, path),
            (x, y, z),
            checked["prefetch"],
            pipeline,
        )
        served = ((dtype, checked["hdim"], padding) for dtype in checked["dtypes"] for padding in checked["paddings"])
        add_tile(table, tile, served, where, path)
    return table


def bwd_tile_for(table: BwdTileTable, variant: Variant) -> BwdTile | None:
    """The tile of one variant, or None when the family has none for it."""
    return table.get((variant.dtype, variant.hdim, variant.padding))
