"""The ranges of what attention calls may hold, for checks and for the recognition of usual calls."""

from __future__ import annotations

import torch

DTYPES = (torch.float16, torch.bfloat16)
MAX_HEAD_DIM = 256
MAX_SPLITS = 128
# Kernels compute in float32 with the scale times log2(e): the largest power of two that leaves room for that, and the
# smallest normal number.
FLOAT_MAX = 2.0**127
FLOAT_MIN = 2.0**-126
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
