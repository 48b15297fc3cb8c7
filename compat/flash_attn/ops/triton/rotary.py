"""flash_attn.ops.triton.rotary: see flash_attn_rocm.layers.rotary."""

from flash_attn_rocm.layers.rotary import apply_rotary

__all__ = ["apply_rotary"]
