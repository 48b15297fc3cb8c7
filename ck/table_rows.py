"""What the rows of tile tables have in common: which kernels they are for, and their lists of numbers."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ck.errors import TableError
from ck.variants import DTYPES, PADDINGS

_Served = TypeVar("_Served", bound=Hashable)
_Tile = TypeVar("_Tile")


def add_tile(table: dict[_Served, _Tile], tile: _Tile, served: Iterable[_Served], where: str, path: Path) -> None:
    """Enter a row's tile for each kernel that it serves.

    Raises:
        TableError: another row has a tile for one of them.
    """
    for kernel in served:
        if kernel in table:
            raise TableError(path, f"{where}: a second tile for {kernel}")
        table[kernel] = tile


def check_served(row: Mapping[str, Any], where: str, path: Path) -> None:
    """Check the dtypes and paddings of a row.

    Raises:
        TableError: there are none, or unknown ones.
    """
    for key, allowed in (("dtypes", DTYPES), ("paddings", PADDINGS)):
        if not row[key] or not set(row[key]) <= set(allowed):
            raise TableError(path, f"{where}: {key} is {row[key]!r}; allowed: {list(allowed)}")


def read_ints(row: Mapping[str, Any], key: str, count: int, where: str, path: Path) -> tuple[int, ...]:
    """`count` positive integers.

    Raises:
        TableError: the value is something else.
    """
    values = row[key]
    if len(values) != count or any(type(value) is not int or value <= 0 for value in values):
        raise TableError(path, f"{where}: {key} is {values!r}; expected {count} positive integers")
    return tuple(values)
