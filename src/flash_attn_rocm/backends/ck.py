"""Attention with the Composable Kernel kernels, through the op of the host library."""

from __future__ import annotations

import torch
from torch import Tensor

from flash_attn_rocm import ops
from flash_attn_rocm.errors import KernelUnavailableError

# How the host library marks a request that no installed kernel covers (csrc/host/error.hpp).
_NO_KERNEL = "no installed kernel: "


def prepare() -> None:
    """Load the host library, register the op, and make the library follow the environment as it is now.

    Raises:
        LibraryNotFoundError: the library or the emulated runtime is missing.
        BackendChoiceError: other GPUs are to be emulated than when the library was loaded.
    """
    ops.load()
    ops.follow_environment()


def _positive_scale(q: Tensor, softmax_scale: float) -> tuple[Tensor, float]:
    """q and a positive scale with the same product.

    CK multiplies masked scores, which are -inf, by the scale, and takes the row maximum before it does: with a scale
    of 0 or below, its softmax gives NaN.
    """
    if softmax_scale > 0.0:
        return q, softmax_scale
    if softmax_scale < 0.0:
        return -q, -softmax_scale
    return q * 0.0, 1.0


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
    q, softmax_scale = _positive_scale(q, softmax_scale)
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
