"""Attention with the Composable Kernel kernels, through the op of the host library."""

from __future__ import annotations

import torch
from torch import Tensor

from flash_attn_rocm import ops
from flash_attn_rocm.errors import KernelUnavailableError

# How the host library marks a request that no installed kernel covers (csrc/host/error.hpp).
_NO_KERNEL = "no installed kernel: "


def prepare() -> None:
    """Load the host library and register the op; nothing when that was done before."""
    ops.load()


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    softmax_scale: float,
    window_left: int,
    window_right: int,
    softcap: float,
    dropout_p: float,
    alibi_slopes: Tensor | None,
    return_attn_probs: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention of checked arguments: out (B, Sq, H, D), lse float32 (B, H, Sq), empty dropout pattern.

    Raises:
        KernelUnavailableError: no installed kernel has this feature, head dim or dtype.
    """
    del return_attn_probs  # the kernels always write lse
    arguments = {
        "softmax_scale": softmax_scale,
        "window_left": window_left,
        "window_right": window_right,
        "softcap": softcap,
        "dropout_p": dropout_p,
    }
    if torch.compiler.is_compiling():
        out, lse = torch.ops.flash_attn_rocm.fwd(q, k, v, alibi_slopes, **arguments)
        return out, lse, lse.new_empty((0,))
    try:
        out, lse = torch.ops.flash_attn_rocm.fwd(q, k, v, alibi_slopes, **arguments)
    except RuntimeError as error:
        _, marker, reason = str(error).partition(_NO_KERNEL)
        if not marker:
            raise
        raise KernelUnavailableError(reason) from error
    return out, lse, lse.new_empty((0,))
