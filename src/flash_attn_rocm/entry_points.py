"""The five entry points of flash_attn's extension module (flash_attn_2_cuda), whose arguments come by position only.

The order is that of flash_attn's CK extension. dropout_p and softmax_scale stand side by side and both are numbers, so
that swapping them would go unnoticed: values that only make sense the other way round raise, and the error states the
order.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from flash_attn_rocm import calls, flash_attn_interface
from flash_attn_rocm.checks import check_buffer
from flash_attn_rocm.errors import InputError

P = ParamSpec("P")
R = TypeVar("R")


def _looks_swapped(arguments: dict[str, Any]) -> str | None:
    """Which argument cannot be what its position says, or None."""
    for name in ("is_causal", "return_softmax", "deterministic", "zero_tensors", "is_rotary_interleaved"):
        if name in arguments and not isinstance(arguments[name], bool):
            return f"{name} is {arguments[name]!r}, which is no bool"
    dropout = arguments.get("p_dropout")
    if isinstance(dropout, float | int) and dropout >= 1.0:
        return f"p_dropout is {arguments['p_dropout']}; a probability of 1 or more drops everything"
    if arguments["softmax_scale"] == 0.0:
        return "softmax_scale is 0.0, which makes every score the same"
    return None


def _checked(function: Callable[P, R]) -> Callable[P, R]:
    """Refuse arguments that look swapped, with the right order."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        arguments = signature.bind(*args, **kwargs).arguments
        found = _looks_swapped(arguments)
        if found:
            order = ", ".join(signature.parameters)
            raise InputError(f"{function.__name__}: {found}. Arguments look swapped; their order is: {order}")
        if "dout" not in arguments and arguments["out"] is not None:  # of backward passes, out is an input
            check_buffer("out", arguments["out"], "q", arguments["q"])
        return function(*args, **kwargs)

    return call


def _into(buffer: Tensor | None, value: Tensor) -> Tensor:
    """The caller's buffer with this value in it, or the value itself."""
    return value if buffer is None else buffer.copy_(value)


@_checked
def fwd(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor | None,
    alibi_slopes: Tensor | None,
    p_dropout: float,
    softmax_scale: float,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    return_softmax: bool,
    gen: torch.Generator | None = None,
) -> list[Tensor]:
    """[out, softmax_lse, S_dmask, rng_state] as of `_flash_attn_forward`; `out` is written into where it is given.

    gen draws dropout's seed in place of torch's default generator.

    Raises:
        InputError: arguments look swapped, or one is not usable.
    """
    result = calls.attention(
        q,
        k,
        v,
        dropout_p=p_dropout,
        softmax_scale=softmax_scale,
        causal=is_causal,
        window_size=(window_size_left, window_size_right),
        softcap=softcap,
        alibi_slopes=alibi_slopes,
        want_lse=True,
        want_map=return_softmax,
        reproducible=True,
        generator=gen,
    )
    attended, *others = flash_attn_interface.with_rng_state(q, result)
    return [_into(out, attended), *others]


@_checked
def varlen_fwd(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor | None,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    seqused_k: Tensor | None,
    leftpad_k: Tensor | None,
    block_table: Tensor | None,
    alibi_slopes: Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    p_dropout: float,
    softmax_scale: float,
    zero_tensors: bool,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    return_softmax: bool,
    gen: torch.Generator | None = None,
    num_splits: int = 0,
) -> list[Tensor]:
    """[out, softmax_lse, S_dmask, rng_state] as of `_flash_attn_varlen_forward`; `out` and `gen` as for `fwd`.

    Raises:
        InputError: arguments look swapped, or one is not usable.
    """
    result = calls.varlen_attention(
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        dropout_p=p_dropout,
        softmax_scale=softmax_scale,
        causal=is_causal,
        window_size=(window_size_left, window_size_right),
        softcap=softcap,
        alibi_slopes=alibi_slopes,
        block_table=block_table,
        want_lse=True,
        want_map=return_softmax,
        seqused_k=seqused_k,
        leftpad_k=leftpad_k,
        num_splits=num_splits,
        reproducible=True,
        generator=gen,
    )
    if zero_tensors:
        result = flash_attn_interface.zero_outside(result, cu_seqlens_q)
    attended, *others = flash_attn_interface.with_rng_state(q, result)
    return [_into(out, attended), *others]


def _gradient_buffers(
    given: tuple[Tensor | None, Tensor | None, Tensor | None], like: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    dq, dk, dv = (
        torch.empty_like(tensor) if buffer is None else buffer for buffer, tensor in zip(given, like, strict=True)
    )
    return dq, dk, dv


@_checked
def bwd(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    softmax_lse: Tensor,
    dq: Tensor | None,
    dk: Tensor | None,
    dv: Tensor | None,
    alibi_slopes: Tensor | None,
    p_dropout: float,
    softmax_scale: float,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    deterministic: bool,
    gen: torch.Generator | None = None,
    rng_state: Tensor | None = None,
) -> list[Tensor]:
    """[dq, dk, dv, softmax_d] as of `_flash_attn_backward`; gradients are written into the buffers that are given.

    gen is not used: dropout is repeated from the rng_state that the forward pass returned.

    Raises:
        InputError: arguments look swapped, or one is not usable.
    """
    del gen
    dq, dk, dv = _gradient_buffers((dq, dk, dv), (q, k, v))
    softmax_d = flash_attn_interface._flash_attn_backward(
        dout,
        q,
        k,
        v,
        out,
        softmax_lse,
        dq,
        dk,
        dv,
        p_dropout,
        softmax_scale,
        is_causal,
        window_size_left,
        window_size_right,
        softcap,
        alibi_slopes,
        deterministic,
        rng_state,
    )
    return [dq, dk, dv, softmax_d]


@_checked
def varlen_bwd(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    softmax_lse: Tensor,
    dq: Tensor | None,
    dk: Tensor | None,
    dv: Tensor | None,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    alibi_slopes: Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    p_dropout: float,
    softmax_scale: float,
    zero_tensors: bool,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    deterministic: bool,
    gen: torch.Generator | None = None,
    rng_state: Tensor | None = None,
) -> list[Tensor]:
    """[dq, dk, dv, softmax_d] as of `_flash_attn_varlen_backward`; buffers and gen as for `bwd`.

    Raises:
        InputError: arguments look swapped, or one is not usable.
    """
    del gen
    dq, dk, dv = _gradient_buffers((dq, dk, dv), (q, k, v))
    softmax_d = flash_attn_interface._flash_attn_varlen_backward(
        dout,
        q,
        k,
        v,
        out,
        softmax_lse,
        dq,
        dk,
        dv,
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        p_dropout,
        softmax_scale,
        is_causal,
        window_size_left,
        window_size_right,
        softcap,
        alibi_slopes,
        deterministic,
        rng_state,
        zero_tensors,
    )
    return [dq, dk, dv, softmax_d]


@_checked
def fwd_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    seqlens_k: Tensor | None,
    rotary_cos: Tensor | None,
    rotary_sin: Tensor | None,
    cache_batch_idx: Tensor | None,
    leftpad_k: Tensor | None,
    block_table: Tensor | None,
    alibi_slopes: Tensor | None,
    out: Tensor | None,
    softmax_scale: float,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    is_rotary_interleaved: bool,
    num_splits: int,
) -> list[Tensor]:
    """[out, softmax_lse] as of `flash_attn_with_kvcache`; `out` is written into where it is given.

    Raises:
        InputError: arguments look swapped, or one is not usable.
    """
    attended, lse = calls.kvcache_attention(
        q,
        k_cache,
        v_cache,
        k=k,
        v=v,
        rotary_cos=rotary_cos,
        rotary_sin=rotary_sin,
        cache_seqlens=seqlens_k,
        cache_batch_idx=cache_batch_idx,
        cache_leftpad=leftpad_k,
        block_table=block_table,
        softmax_scale=softmax_scale,
        causal=is_causal,
        window_size=(window_size_left, window_size_right),
        softcap=softcap,
        rotary_interleaved=is_rotary_interleaved,
        alibi_slopes=alibi_slopes,
        num_splits=num_splits,
        want_lse=True,
    )
    return [_into(out, attended), lse]
