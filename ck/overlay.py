"""Headers that come before CK's own where it lacks attention for a GPU family, or errs: ck/overlay/<family>/.

`overlay.toml` beside them, where there is one, says of each header which words in which of CK's headers show that it is
needed no more.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from ck.errors import TableError, check_keys

OVERLAY_DIR = Path(__file__).parent / "overlay"
TABLE_NAME = "overlay.toml"
_TOP_KEYS: dict[str, type | tuple[type, ...]] = {"schema": int, "headers": list}
_ROW_KEYS: dict[str, type | tuple[type, ...]] = {"path": str, "probe": str, "words": str, "why": str}


def find_overlay(family: str, include: Path, work: Path, directory: Path = OVERLAY_DIR) -> Path | None:
    """The directory to search before CK's `include`; None where the family has none or this CK needs none.

    Args:
        work: where a directory of the headers that are left is made, if this CK needs some of them and not all.

    Raises:
        TableError: the directory's overlay.toml is malformed.
    """
    overlay = directory / family
    if not overlay.is_dir():
        return None
    headers = {path.relative_to(overlay).as_posix(): path for path in sorted(overlay.rglob("*.hpp"))}
    settled = _settled(overlay, include, headers) if (overlay / TABLE_NAME).exists() else set()
    if not settled:
        return overlay
    if not _replacing(headers) - settled:
        return None
    made = work / "overlay"
    for name, path in headers.items():
        copy = made / name
        if name in settled:
            copy.unlink(missing_ok=True)
        elif not copy.exists() or copy.read_bytes() != path.read_bytes():  # a new time would mean a new compile
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    return made


def _replacing(headers: dict[str, Path]) -> set[str]:
    """Those in the place of one of CK's; the others serve them."""
    return {name for name in headers if name.startswith("ck_tile/")}


def _settled(overlay: Path, include: Path, headers: dict[str, Path]) -> set[str]:
    """The headers that this CK does not need."""
    path = overlay / TABLE_NAME
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise TableError(path, f"not valid TOML: {error}") from error
    table: dict[str, Any] = check_keys(document, _TOP_KEYS, path, "top level")
    if table["schema"] != 1:
        raise TableError(path, f"schema is {table['schema']}; this reader knows schema 1")
    settled, seen = set(), set()
    for index, entry in enumerate(table["headers"], start=1):
        row: dict[str, Any] = check_keys(entry, _ROW_KEYS, path, f"[[headers]] row {index}")
        probe = include / row["probe"]
        if probe.is_file() and row["words"] in probe.read_text(encoding="utf-8", errors="replace"):
            settled.add(row["path"])
        seen.add(row["path"])
    if seen != _replacing(headers):
        raise TableError(path, f"rows for {sorted(seen)}; expected one for each of {sorted(_replacing(headers))}")
    return settled
