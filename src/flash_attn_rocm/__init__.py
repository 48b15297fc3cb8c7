"""FlashAttention-2 for AMD GPUs with the signatures of flash_attn 2.x; importing it touches no kernel."""

from __future__ import annotations

from flash_attn_rocm.diagnostics import info
from flash_attn_rocm.interface import flash_attn_func

__version__ = "0.1.0"

__all__ = ["__version__", "flash_attn_func", "info"]
