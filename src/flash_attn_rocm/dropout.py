"""Dropout's random numbers: drawn on the device by torch's generator, expanded by Philox as CK's kernels do.

A call's randomness is one int64 tensor [seed, offset]. From it every attention weight gets a byte that depends on its
batch, head, query and key alone, so that a backward pass, another backend or another split of the heads finds the same
ones. The scheme is that of ck_tile/host/reference/reference_batched_dropout_randval.hpp.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

# One run of the generator gives 16 bytes; 64 of them fill a tile of 32 queries and 32 keys.
_TILE = 32
_RUNS_PER_TILE = 64
_ROUNDS = 7
# Philox 4x32 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11): multipliers and key increments.
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_LOW32 = 0xFFFFFFFF


def draw_rng_state(like: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """[seed, offset], int64 (2), on the device of `like`: from torch's default generator, on the current stream."""
    return torch.randint(0, 2**63 - 1, (2,), dtype=torch.int64, device=like.device, generator=generator)


def keep_limit(dropout_p: float) -> int:
    """A weight is kept iff its random byte is at most this."""
    return math.floor(255.0 * (1.0 - dropout_p))


def _multiply(factor: int, x: Tensor) -> tuple[Tensor, Tensor]:
    """High and low 32 bits of factor * x, all in int64: in two halves, for the product can have 64 bits."""
    low = factor * (x & 0xFFFF)
    high = factor * (x >> 16) + (low >> 16)
    return high >> 16, ((high & 0xFFFF) << 16) | (low & 0xFFFF)


def _philox(counter: tuple[Tensor, ...], key: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """Four words of 32 bits for each counter of four words; words are held in int64."""
    x, y, z, w = counter
    key_x, key_y = key
    for _ in range(_ROUNDS):
        high_x, low_x = _multiply(_MULTIPLIERS[0], x)
        high_z, low_z = _multiply(_MULTIPLIERS[1], z)
        x, y, z, w = high_z ^ y ^ key_x, low_z, high_x ^ w ^ key_y, low_x
        key_x, key_y = (key_x + _KEY_STEPS[0]) & _LOW32, (key_y + _KEY_STEPS[1]) & _LOW32
    return x, y, z, w


def random_map(rng_state: Tensor, batch: int, heads: int, seqlen_q: int, seqlen_k: int) -> Tensor:
    """The random byte of every attention weight: uint8 (batch, heads, seqlen_q, seqlen_k)."""
    device = rng_state.device
    rows, columns = -(-seqlen_q // _TILE), -(-seqlen_k // _TILE)
    runs = torch.arange(batch * heads * _RUNS_PER_TILE, device=device).view(batch, heads, 1, 1, _RUNS_PER_TILE)
    seed, offset = rng_state[0], rng_state[1] + runs
    row = torch.arange(rows, device=device).view(1, 1, rows, 1, 1)
    column = torch.arange(columns, device=device).view(1, 1, 1, columns, 1)
    words = _philox((offset & _LOW32, (offset >> 32) & _LOW32, row, column), (seed & _LOW32, (seed >> 32) & _LOW32))
    packed = torch.stack(words, dim=-1)[..., None] >> torch.arange(0, 32, 8, device=device)
    # Run r = 32 half + column and byte b = 8 upper + low stand at row 16 upper + 8 half + low of the tile.
    bytes_ = (packed & 0xFF).to(torch.uint8).reshape(batch, heads, rows, columns, 2, _TILE, 2, 8)
    tiles = bytes_.permute(0, 1, 2, 6, 4, 7, 3, 5)
    return tiles.reshape(batch, heads, rows * _TILE, columns * _TILE)[:, :, :seqlen_q, :seqlen_k]
