"""flash_attn's extension module by name: see flash_attn_rocm.entry_points."""

from flash_attn_rocm.entry_points import bwd, fwd, fwd_kvcache, varlen_bwd, varlen_fwd

__all__ = ["bwd", "fwd", "fwd_kvcache", "varlen_bwd", "varlen_fwd"]
