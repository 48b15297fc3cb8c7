"""What the attention functions accept, in one place: the same contract for every backend and device."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor

from flash_attn_rocm.errors import InputError

DTYPES = (torch.float16, torch.bfloat16)
MAX_HEAD_DIM = 256
# Kernels compute in float32 with the scale times log2(e): the largest power of two that leaves room for that, and the
# smallest normal number.
_FLOAT_MAX = 2.0**127
_FLOAT_MIN = 2.0**-126
_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1


def _check_layout(name: str, tensor: Any) -> None:
    """A dense tensor: of other layouts, shape and strides are missing or mean something else."""
    if not isinstance(tensor, Tensor):
        raise InputError(f"{name} is {type(tensor).__name__}; expected a torch.Tensor")
    kind = "nested" if tensor.is_nested else "quantized" if tensor.is_quantized else str(tensor.layout)
    if kind != "torch.strided":
        raise InputError(f"{name} has layout {kind}; expected torch.strided (a dense tensor). Convert it first")


def _check_tensors(q: Tensor, k: Tensor, v: Tensor) -> None:
    named = {"q": q, "k": k, "v": v}
    for name, tensor in named.items():
        _check_layout(name, tensor)
        if tensor.dim() != 4:
            raise InputError(
                f"{name} has {tensor.dim()} dimensions, shape {tuple(tensor.shape)}; "
                "expected 4: (batch, seqlen, nheads, headdim)"
            )
    dtypes = ", ".join(f"{name} {tensor.dtype}" for name, tensor in named.items())
    if any(tensor.dtype not in DTYPES for tensor in named.values()):
        raise InputError(
            f"dtypes are {dtypes}; allowed: torch.float16 and torch.bfloat16. "
            "Cast q, k and v first (under autocast, rotary embeddings and norms often promote them to float32)"
        )
    if not q.dtype == k.dtype == v.dtype:
        raise InputError(f"q, k and v must have one dtype, but they have: {dtypes}. Cast them to the same one")
    if not q.device == k.device == v.device:
        devices = ", ".join(f"{name} on {tensor.device}" for name, tensor in named.items())
        raise InputError(f"q, k and v must be on one device, but: {devices}")


def _check_shapes(q: Tensor, k: Tensor, v: Tensor) -> None:
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if k.shape != v.shape:
        raise InputError(f"k and v must have the same shape, but: {shapes}")
    if q.shape[0] != k.shape[0]:
        raise InputError(f"batch sizes of q and k differ: {shapes}")
    if q.shape[3] != k.shape[3]:
        raise InputError(f"head dims of q and k differ: {shapes}")
    if not 1 <= q.shape[3] <= MAX_HEAD_DIM:
        raise InputError(f"head dim is {q.shape[3]}; allowed: 1 to {MAX_HEAD_DIM}")
    heads, heads_k = q.shape[2], k.shape[2]
    if heads_k == 0 or heads % heads_k != 0:
        raise InputError(f"nheads of q ({heads}) must be a multiple of nheads of k and v ({heads_k}): {shapes}")


def _check_alibi(q: Tensor, slopes: Tensor) -> None:
    _check_layout("alibi_slopes", slopes)
    batch, heads = q.shape[0], q.shape[2]
    if slopes.dtype != torch.float32:
        raise InputError(f"alibi_slopes is {slopes.dtype}; expected torch.float32")
    if slopes.device != q.device:
        raise InputError(f"alibi_slopes is on {slopes.device}, q on {q.device}; they must be on one device")
    if tuple(slopes.shape) not in ((heads,), (batch, heads)):
        raise InputError(f"alibi_slopes has shape {tuple(slopes.shape)}; allowed: ({heads},) or ({batch}, {heads})")


def _check_number(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float, torch.SymInt, torch.SymFloat, Real)):
        raise InputError(f"{name} is {value!r} ({type(value).__name__}); expected a number")


def _check_float(name: str, value: Any, allowed: str, *, positive: bool) -> None:
    """Zero, or a magnitude that float32 holds; NaN fails every comparison."""
    _check_number(name, value)
    in_range = _FLOAT_MIN <= value <= _FLOAT_MAX or (not positive and -_FLOAT_MAX <= value <= -_FLOAT_MIN)
    if not (value == 0.0 or in_range):
        raise InputError(f"{name} is {value}; allowed: {allowed} (1.2e-38 to 1.7e38 in magnitude, as in float32)")


def _check_window(window_size: Any) -> None:
    expected = f"expected two integers (left, right) from {_INT32_MIN} to {_INT32_MAX}, negative for unbounded"
    if not isinstance(window_size, tuple | list) or len(window_size) != 2:
        raise InputError(f"window_size is {window_size!r}; {expected}")
    for bound in window_size:
        is_integer = isinstance(bound, (int, torch.SymInt, Integral)) and not isinstance(bound, bool)
        if not (is_integer and _INT32_MIN <= bound <= _INT32_MAX):
            raise InputError(f"window_size is {window_size!r}; {expected}")


def check_inputs(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    dropout_p: float,
    softmax_scale: float | None,
    window_size: tuple[int, int],
    softcap: float,
    alibi_slopes: Tensor | None,
) -> None:
    """Check the arguments of an attention call with fixed-length sequences.

    Raises:
        InputError: names the argument, its value and what is allowed.
    """
    _check_tensors(q, k, v)
    _check_shapes(q, k, v)
    _check_number("dropout_p", dropout_p)
    if not 0.0 <= dropout_p < 1.0:
        raise InputError(f"dropout_p is {dropout_p}; allowed: 0 <= dropout_p < 1")
    if softmax_scale is not None:
        _check_float("softmax_scale", softmax_scale, "None, 0 or a finite number", positive=False)
    _check_window(window_size)
    _check_float("softcap", softcap, "0 (off) or a finite positive number", positive=True)
    if alibi_slopes is not None:
        _check_alibi(q, alibi_slopes)
