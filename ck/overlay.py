"""Headers that come before CK's own where it lacks attention for a GPU family, or errs: ck/overlay/<family>/.

`overlay.toml` beside them, where there is one, says which words in which of CK's headers show that they are needed no
more.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from ck.errors import TableError, check_keys

OVERLAY_DIR = Path(__file__).parent / "overlay"
_KEYS: dict[str, type | tuple[type, ...]] = {"schema": int, "header": str, "words": str, "why": str}


def find_overlay(family: str, include: Path, directory: Path = OVERLAY_DIR) -> Path | None:
    """The directory to search before CK's `include`; None where the family has none or this CK needs none.

    Raises:
        TableError: the directory's overlay.toml is malformed.
    """
    overlay = directory / family
    if not overlay.is_dir():
        return None
    path = overlay / "overlay.toml"
    if not path.exists():
        return overlay
    table: dict[str, Any] = check_keys(tomllib.loads(path.read_text(encoding="utf-8")), _KEYS, path, "top level")
    if table["schema"] != 1:
        raise TableError(path, f"schema is {table['schema']}; this reader knows schema 1")
    header = include / table["header"]
    settled = header.is_file() and table["words"] in header.read_text(encoding="utf-8", errors="replace")
    return None if settled else overlay
