"""FlashAttention-2 for AMD GPUs with the signatures of flash_attn 2.x; importing it touches no kernel."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flash_attn_rocm.diagnostics import info
    from flash_attn_rocm.interface import (
        flash_attn_func,
        flash_attn_kvpacked_func,
        flash_attn_qkvpacked_func,
        flash_attn_varlen_func,
        flash_attn_varlen_kvpacked_func,
        flash_attn_varlen_qkvpacked_func,
        flash_attn_with_kvcache,
    )

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
    "info",
]

# Loaded at first use, and torch with them: the GPU tables in archs/ are read where there is no torch, such as in the
# build of a kernel package.
_HOMES = dict.fromkeys(__all__[1:-1], "flash_attn_rocm.interface") | {"info": "flash_attn_rocm.diagnostics"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
