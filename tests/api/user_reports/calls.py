"""What users reported about FlashAttention-2, each with the right answer: calls and comparisons that its tests share.

Ids B0 to B25 are those of the collection. Sources: threads of Dao-AILab/flash-attention, ROCm and vllm-project, named
with each test. Each test runs on both backends.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from flash_attn_rocm import flash_attn_func, paths
from flash_attn_rocm.kernel_manifest import read_manifest
from tests.conftest import EMULATED_GPU


def largest_varlen_headdim() -> int:
    """256, or what the installed kernels have where they are used: a small profile has fewer."""
    if os.environ["FLASH_ATTN_ROCM_BACKEND"] == "sdpa":
        return 256
    kernels = read_manifest(paths.find_manifests()[EMULATED_GPU])["kernels"]
    return max(kernel["hdim_q"] for kernel in kernels if kernel["mode"] == "group" and kernel["op"] == "fmha_fwd")


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def close(got: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype = torch.bfloat16, factor: float = 2.0) -> None:
    """Within `factor` roundings of the largest value."""
    rounding = 2.0**-8 if dtype is torch.bfloat16 else 2.0**-11
    error = (got.cpu().double() - exact).abs().max().item() if exact.numel() else 0.0
    assert error <= factor * rounding * max(1.0, exact.abs().max().item()), error


def attend(device: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **arguments: Any) -> tuple[Any, Any]:
    out, lse, _ = flash_attn_func(q.to(device), k.to(device), v.to(device), return_attn_probs=True, **arguments)
    return out, lse


def ints(device: str, values: list[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device=device)
