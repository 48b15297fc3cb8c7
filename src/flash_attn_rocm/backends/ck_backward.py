"""Gradients with CK's backward kernels: whether an installed one covers a call, and the call."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from flash_attn_rocm.backends import ck
from flash_attn_rocm.kernel_manifest import read_manifest
from flash_attn_rocm.limits import NAMED_DTYPES

# The kernels read 16 bytes at once, so that head dims are padded with zeros to a multiple of this.
HDIM_STEP = 8
# The kernels take ALiBi's distances modulo 2^16 (csrc/host/dispatch.hpp).
MAX_ALIBI_LENGTH = 65_536


@cache
def _backward_kernels(path: Path) -> tuple[dict[str, Any], ...]:
    return tuple(kernel for kernel in read_manifest(path)["kernels"] if kernel["op"] == "fmha_bwd")


def covers(
    manifest: Path,
    *,
    mode: str,
    dtype: torch.dtype,
    hdim: int,
    longest: int,
    masked: bool,
    alibi: bool,
    dropout: bool,
    deterministic: bool,
) -> bool:
    """Whether the kernels of a kernels.json have one for such a call; CK has none with softcap.

    Args:
        longest: the most rows that a sequence of queries or keys has; it matters with ALiBi only.
    """
    if alibi and longest > MAX_ALIBI_LENGTH:
        return False
    padded = -(-hdim // HDIM_STEP) * HDIM_STEP
    return any(
        kernel["mode"] == mode
        and NAMED_DTYPES.get(kernel["dtype"]) == dtype
        and (kernel["mask"] or not masked)
        and kernel["bias"] == ("alibi" if alibi else "none")
        and kernel["dropout"] == dropout
        and (kernel["deterministic"] or not deterministic)
        and (padded == kernel["hdim_q"] or (padded < kernel["hdim_q"] and kernel["padding"] == "full"))
        for kernel in _backward_kernels(manifest)
    )


def _pad(tensor: Tensor) -> Tensor:
    missing = -tensor.shape[-1] % HDIM_STEP
    return F.pad(tensor, (0, missing)) if missing else tensor


def gradients(
    tensors: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
    lse: Tensor,
    sequences: tuple[Tensor, Tensor] | None,
    alibi_slopes: Tensor | None,
    rng_state: Tensor | None,
    targets: tuple[Tensor | None, ...] = (None, None, None),
    **options: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """dq, dk, dv in the dtype of q, and softmax_d = sum(dout * out), float32, shaped like lse.

    Beside these, while it runs: dq in float32, with `deterministic` as often as the longest sequence has tiles of keys
    (`tile_n` of kernels.json); with grouped queries dk and dv of every query head in the dtype of k.

    Args:
        tensors: dout, q, k, v, out; (B, S, H, D), or (rows, H, D) with `sequences`.
        lse: float32 (B, H, Sq) or (H, rows of q).
        sequences: cu_seqlens_q and cu_seqlens_k.
        alibi_slopes: float32 (H) or (B, H).
        rng_state: int64 (2), of the forward call, where it had dropout.
        targets: dq, dk, dv to write into, in any layout; new ones for None. Head dims that are padded need new ones.
        options: of the op.
    """
    padded = tuple(_pad(tensor) for tensor in tensors)
    tables = () if sequences is None else tuple(table.contiguous() for table in sequences)
    slopes = None if alibi_slopes is None else alibi_slopes.contiguous()
    before, after = (*padded, lse, *tables), (slopes, rng_state)
    ops, name = torch.ops.flash_attn_rocm, "bwd" if sequences is None else "varlen_bwd"
    if padded[1] is tensors[1] and any(target is not None for target in targets):
        pairs = zip(targets, tensors[1:4], strict=True)
        dq, dk, dv = (torch.empty_like(tensor) if target is None else target for target, tensor in pairs)
        with torch.no_grad():
            softmax_d = ck.call(getattr(ops, name + "_out"), (*before, dq, dk, dv, *after), **options)
        ck.mark_written(dq, dk, dv)
    else:
        *grads, softmax_d = ck.call(getattr(ops, name), (*before, *after), **options)
        hdim = tensors[1].shape[-1]
        dq, dk, dv = (grad[..., :hdim] if grad.shape[-1] != hdim else grad for grad in grads)
    # The kernels' own holds the probability that a weight is kept.
    return dq, dk, dv, softmax_d / (1.0 - options["dropout_p"]) if options["dropout_p"] > 0.0 else softmax_d
