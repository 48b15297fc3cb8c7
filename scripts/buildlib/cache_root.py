"""Where downloads and compiled code objects are kept between builds."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def cache_root(env: Mapping[str, str] = os.environ) -> Path:
    """FLASH_ATTN_ROCM_CACHE, else flash-attn-rocm in the user's cache directory."""
    if chosen := env.get("FLASH_ATTN_ROCM_CACHE"):
        return Path(chosen).expanduser().absolute()
    base = env.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "flash-attn-rocm"
