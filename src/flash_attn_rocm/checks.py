"""What the attention functions accept, in one place: the same contract for every backend and device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor

from flash_attn_rocm.errors import InputError
from flash_attn_rocm.limits import DTYPES, FLOAT_MAX, FLOAT_MIN, INT32_MAX, INT32_MIN, MAX_HEAD_DIM


def check_layout(name: str, tensor: Any) -> None:
    """A dense tensor: of other layouts, shape and strides are missing or mean something else."""
    if not isinstance(tensor, Tensor):
        raise InputError(f"{name} is {type(tensor).__name__}; expected a torch.Tensor")
    kind = "nested" if tensor.is_nested else "quantized" if tensor.is_quantized else str(tensor.layout)
    if kind != "torch.strided":
        raise InputError(f"{name} has layout {kind}; expected torch.strided (a dense tensor). Convert it first")


def check_attention_tensors(named: Mapping[str, Any], layouts: Mapping[str, str]) -> None:
    """Dense tensors of one 16-bit dtype on one device; `layouts` gives the names of each one's dimensions."""
    for name, tensor in named.items():
        check_layout(name, tensor)
        expected = layouts[name]
        if tensor.dim() != expected.count(",") + 1:
            raise InputError(
                f"{name} has {tensor.dim()} dimensions, shape {tuple(tensor.shape)}; "
                f"expected {expected.count(',') + 1}: ({expected})"
            )
    first = next(iter(named.values()))
    # Messages are made where they are needed: a call is made thousands of times, and torch.compile traces this.
    for tensor in named.values():
        if tensor.dtype not in DTYPES:
            raise InputError(
                f"dtypes are {_dtypes(named)}; allowed: torch.float16 and torch.bfloat16. Cast {listed(named)} first "
                "(under autocast, rotary embeddings and norms often promote them to float32)"
            )
    for tensor in named.values():
        if tensor.dtype != first.dtype:
            raise InputError(
                f"{listed(named)} must have one dtype, but they have: {_dtypes(named)}. Cast them to the same one"
            )
        if tensor.device != first.device:
            devices = ", ".join(f"{name} on {tensor.device}" for name, tensor in named.items())
            raise InputError(f"{listed(named)} must be on one device, but: {devices}")


def _dtypes(named: Mapping[str, Tensor]) -> str:
    return ", ".join(f"{name} {tensor.dtype}" for name, tensor in named.items())


def listed(names: Iterable[str]) -> str:
    """`q, k and v`."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def describe_shapes(named: Mapping[str, Tensor]) -> str:
    """`q (2, 5, 4, 64), k (2, 7, 4, 64)`."""
    return ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in named.items())


def check_heads(named: Mapping[str, Tensor]) -> None:
    """Of q, k and v (or caches), in this order: k and v alike, heads and head dims (last two) that go with q's."""
    (_, q), (name_k, k), (name_v, v) = list(named.items())[:3]
    if k.shape != v.shape:
        raise InputError(f"{name_k} and {name_v} must have the same shape, but: {describe_shapes(named)}")
    if q.shape[-1] != k.shape[-1]:
        raise InputError(f"head dims of q and {name_k} differ: {describe_shapes(named)}")
    if not 1 <= q.shape[-1] <= MAX_HEAD_DIM:
        raise InputError(f"head dim is {q.shape[-1]}; allowed: 1 to {MAX_HEAD_DIM}")
    heads, heads_k = q.shape[-2], k.shape[-2]
    if heads_k == 0 or heads % heads_k != 0:
        raise InputError(
            f"nheads of q ({heads}) must be a multiple of nheads of {name_k} and {name_v} ({heads_k}): "
            f"{describe_shapes(named)}"
        )


def check_alibi(q: Tensor, slopes: Tensor, batch: int) -> None:
    """float32 (nheads,) or (batch, nheads) on q's device."""
    check_layout("alibi_slopes", slopes)
    heads = q.shape[-2]
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
    in_range = FLOAT_MIN <= value <= FLOAT_MAX or (not positive and -FLOAT_MAX <= value <= -FLOAT_MIN)
    if not (value == 0.0 or in_range):
        raise InputError(f"{name} is {value}; allowed: {allowed} (1.2e-38 to 1.7e38 in magnitude, as in float32)")


def _check_window(window_size: Any) -> None:
    expected = f"expected two integers (left, right) from {INT32_MIN} to {INT32_MAX}, negative for unbounded"
    if not isinstance(window_size, tuple | list) or len(window_size) != 2:
        raise InputError(f"window_size is {window_size!r}; {expected}")
    for bound in window_size:
        is_integer = isinstance(bound, (int, torch.SymInt, Integral)) and not isinstance(bound, bool)
        if not (is_integer and INT32_MIN <= bound <= INT32_MAX):
            raise InputError(f"window_size is {window_size!r}; {expected}")


def check_integer(name: str, value: Any, least: int, most: int) -> None:
    """An integer within bounds, those included."""
    is_integer = isinstance(value, (int, torch.SymInt, Integral)) and not isinstance(value, bool)
    if not (is_integer and least <= value <= most):
        raise InputError(f"{name} is {value!r}; expected an integer from {least} to {most}")


def check_scoring(*, softmax_scale: Any, window_size: Any, softcap: Any, dropout_p: Any = 0.0) -> None:
    """The numbers that every attention function takes."""
    _check_number("dropout_p", dropout_p)
    if not 0.0 <= dropout_p < 1.0:
        raise InputError(f"dropout_p is {dropout_p}; allowed: 0 <= dropout_p < 1")
    if softmax_scale is not None:
        _check_float("softmax_scale", softmax_scale, "None, 0 or a finite number", positive=False)
    _check_window(window_size)
    _check_float("softcap", softcap, "0 (off) or a finite positive number", positive=True)


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
    named = {"q": q, "k": k, "v": v}
    check_attention_tensors(named, dict.fromkeys(named, "batch, seqlen, nheads, headdim"))
    if k.shape == v.shape and q.shape[0] != k.shape[0]:
        raise InputError(f"batch sizes of q and k differ: {describe_shapes(named)}")
    check_heads(named)
    check_scoring(dropout_p=dropout_p, softmax_scale=softmax_scale, window_size=window_size, softcap=softcap)
    if alibi_slopes is not None:
        check_alibi(q, alibi_slopes, q.shape[0])


def check_buffer(name: str, buffer: Any, name_like: str, like: Any) -> None:
    """A tensor that a result is written into: torch would broadcast to another shape, and convert to another dtype."""
    check_layout(name, buffer)
    check_layout(name_like, like)
    if (buffer.shape, buffer.dtype, buffer.device) != (like.shape, like.dtype, like.device):
        raise InputError(
            f"{name} is {buffer.dtype} {tuple(buffer.shape)} on {buffer.device}; expected that of {name_like}: "
            f"{like.dtype} {tuple(like.shape)} on {like.device}"
        )


def check_packed(name: str, tensor: Any, layout: str, parts: int) -> None:
    """A tensor that holds q, k and v, or k and v, side by side in its third to last dimension."""
    check_layout(name, tensor)
    dimensions = layout.count(",") + 1
    if tensor.dim() != dimensions or tensor.shape[-3] != parts:
        raise InputError(f"{name} has shape {tuple(tensor.shape)}; expected {dimensions} dimensions: ({layout})")
