"""The ranges of what attention calls may hold: dtypes, numbers, and the keys that a cache has room for."""

from __future__ import annotations

import torch
from torch import Tensor

NAMED_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}  # by their names in kernels.json
DTYPES = tuple(NAMED_DTYPES.values())
MAX_HEAD_DIM = 256
MAX_SPLITS = 128
# Kernels compute in float32 with the scale times log2(e): the largest power of two that leaves room for that, and the
# smallest normal number.
FLOAT_MAX = 2.0**127
FLOAT_MIN = 2.0**-126
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1


def capacity_of(k_cache: Tensor, block_table: Tensor | None) -> int:
    """Keys that one sequence can have in a KV cache (B, S, Hk, D), or in pages (num_blocks, page_size, Hk, D)."""
    page_size: int = k_cache.shape[1]
    return page_size if block_table is None else block_table.shape[1] * page_size
