"""Decoded listings as the emulated runtime reads them from decoded/ and from its cache."""

from __future__ import annotations

import hashlib
from pathlib import Path

HEADER = "flash-attn-rocm decoded 2 "


def sealed(body: str) -> str:
    """A listing with this body: its first line holds the body's checksum."""
    return f"{HEADER}{hashlib.sha256(body.encode()).hexdigest()}\n{body}"


def body_of(listing: str) -> str:
    """What follows a listing's first line."""
    return listing.partition("\n")[2]


def listing_file(directory: Path, image: bytes) -> Path:
    """Where the listing of a code object is in a directory of listings."""
    return directory / f"{hashlib.sha256(image).hexdigest()}.txt"
