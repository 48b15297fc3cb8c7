"""Layers around attention, with the names of flash_attn.layers."""
