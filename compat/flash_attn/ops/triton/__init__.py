"""flash_attn.ops.triton: the names only; nothing here uses Triton."""
