"""One attention call from start to end: check the arguments, choose a backend, run it."""

from __future__ import annotations

from contextlib import nullcontext
from typing import NamedTuple

import torch
from torch import Tensor

from flash_attn_rocm import backends, usual_calls
from flash_attn_rocm.backends import ck, sdpa, sdpa_kvcache, sdpa_varlen
from flash_attn_rocm.checks import check_inputs
from flash_attn_rocm.checks_sequences import (
    check_kvcache_inputs,
    check_kvcache_values,
    check_varlen_inputs,
    check_varlen_values,
)
from flash_attn_rocm.dropout import draw_rng_state

_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)


class Result(NamedTuple):
    """What a call made; lse and dropout_map are empty and rng_state is None where there was no need for them."""

    out: Tensor
    lse: Tensor
    dropout_map: Tensor
    rng_state: Tensor | None


def _on_ck(q: Tensor) -> bool:
    device = q.device
    return backends.prepare(device.type, device.index) == "ck"


def scale_of(q: Tensor, softmax_scale: float | None) -> float:
    """The scale that was given, or its default."""
    return q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale


def _drawn(q: Tensor, dropout_p: float, needed: bool, generator: torch.Generator | None) -> Tensor | None:
    """rng_state of a call with dropout whose random numbers must be repeatable."""
    return draw_rng_state(q, generator) if needed and dropout_p > 0.0 else None


def _on_host(length: int | Tensor) -> int:
    """The length; transformers gives it as a tensor where it packs sequences by their positions."""
    if isinstance(length, Tensor) and length.numel() == 1 and length.dtype in _INTEGERS:
        return int(length.item())
    return length


def _least(one: int, other: int) -> int:
    """The smaller one; traced numbers stay traced."""
    if type(one) is int and type(other) is int:
        return min(one, other)
    smaller: int = torch.sym_min(one, other)
    return smaller


def longest_sequences(q: Tensor, k: Tensor, max_seqlen_q: int, max_seqlen_k: int) -> tuple[int, int]:
    """No sequence is longer than all of them: larger maxima, which are allowed, would only cost memory and time."""
    return _least(max_seqlen_q, q.shape[0]), _least(max_seqlen_k, k.shape[0])


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    dropout_p: float,
    softmax_scale: float | None,
    causal: bool,
    window_size: tuple[int, int],
    softcap: float,
    alibi_slopes: Tensor | None,
    want_lse: bool,
    want_map: bool,
    deterministic: bool = False,
    reproducible: bool = False,
    generator: torch.Generator | None = None,
) -> Result:
    """Attention of sequences of one length; `reproducible` gives a dropout that its rng_state repeats.

    `generator` draws rng_state in place of torch's default one.
    `deterministic` is about the gradients of the kernels: the same bits in every run.

    Raises:
        InputError: an argument is not usable.
    """
    if not usual_calls.batch(q, k, v, dropout_p, softmax_scale, window_size, softcap, alibi_slopes):
        check_inputs(
            q,
            k,
            v,
            dropout_p=dropout_p,
            softmax_scale=softmax_scale,
            window_size=window_size,
            softcap=softcap,
            alibi_slopes=alibi_slopes,
        )
    on_ck = _on_ck(q)
    rng_state = _drawn(q, dropout_p, on_ck or want_map or reproducible, generator)
    backend = ck.forward if on_ck else sdpa.forward
    parts = backend(
        q,
        k,
        v,
        softmax_scale=scale_of(q, softmax_scale),
        window_left=window_size[0],
        window_right=0 if causal else window_size[1],
        softcap=softcap,
        dropout_p=dropout_p,
        alibi_slopes=alibi_slopes,
        rng_state=rng_state,
        want_lse=want_lse,
        want_map=want_map,
        deterministic=deterministic,
    )
    return Result(*parts, rng_state)


def varlen_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    *,
    dropout_p: float,
    softmax_scale: float | None,
    causal: bool,
    window_size: tuple[int, int],
    softcap: float,
    alibi_slopes: Tensor | None,
    block_table: Tensor | None,
    want_lse: bool,
    want_map: bool,
    seqused_k: Tensor | None = None,
    leftpad_k: Tensor | None = None,
    num_splits: int = 0,
    deterministic: bool = False,
    reproducible: bool = False,
    generator: torch.Generator | None = None,
) -> Result:
    """Attention of sequences of several lengths, packed one after another.

    Raises:
        InputError: an argument is not usable.
    """
    max_seqlen_q, max_seqlen_k = _on_host(max_seqlen_q), _on_host(max_seqlen_k)
    if usual_calls.varlen(
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        seqused_k,
        leftpad_k,
        block_table,
        dropout_p,
        softmax_scale,
        window_size,
        softcap,
        alibi_slopes,
        num_splits,
    ):
        check_varlen_values(
            q, k, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_k, leftpad_k, block_table
        )
    else:
        check_varlen_inputs(
            q,
            k,
            v,
            cu_seqlens_q,
            cu_seqlens_k,
            max_seqlen_q,
            max_seqlen_k,
            seqused_k=seqused_k,
            leftpad_k=leftpad_k,
            block_table=block_table,
            dropout_p=dropout_p,
            softmax_scale=softmax_scale,
            window_size=window_size,
            softcap=softcap,
            alibi_slopes=alibi_slopes,
            num_splits=num_splits,
        )
    longest_q, longest_k = longest_sequences(q, k, max_seqlen_q, max_seqlen_k)
    max_seqlen_q = longest_q
    if block_table is None and not want_map:  # the map has max_seqlen_k columns
        max_seqlen_k = longest_k
    on_ck = _on_ck(q)
    rng_state = _drawn(q, dropout_p, on_ck or want_map or reproducible, generator)
    backend = ck.varlen_forward if on_ck else sdpa_varlen.forward
    parts = backend(
        q,
        k,
        v,
        cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_k=cu_seqlens_k,
        seqused_k=seqused_k,
        leftpad_k=leftpad_k,
        block_table=block_table,
        max_seqlen_q=max_seqlen_q,
        max_seqlen_k=max_seqlen_k,
        softmax_scale=scale_of(q, softmax_scale),
        window_left=window_size[0],
        window_right=0 if causal else window_size[1],
        softcap=softcap,
        dropout_p=dropout_p,
        alibi_slopes=alibi_slopes,
        rng_state=rng_state,
        want_lse=want_lse,
        want_map=want_map,
        num_splits=num_splits,
        deterministic=deterministic,
    )
    return Result(*parts, rng_state)


def kvcache_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    *,
    k: Tensor | None,
    v: Tensor | None,
    rotary_cos: Tensor | None,
    rotary_sin: Tensor | None,
    cache_seqlens: int | Tensor | None,
    cache_batch_idx: Tensor | None,
    cache_leftpad: Tensor | None,
    block_table: Tensor | None,
    softmax_scale: float | None,
    causal: bool,
    window_size: tuple[int, int],
    softcap: float,
    rotary_interleaved: bool,
    alibi_slopes: Tensor | None,
    num_splits: int,
    want_lse: bool,
) -> tuple[Tensor, Tensor]:
    """Attention to a KV cache, to which k and v are appended first; outside of autograd, as in flash_attn.

    Raises:
        InputError: an argument is not usable.
    """
    if usual_calls.kvcache(
        q,
        k_cache,
        v_cache,
        k,
        v,
        rotary_cos,
        rotary_sin,
        cache_seqlens,
        cache_batch_idx,
        cache_leftpad,
        block_table,
        softmax_scale,
        window_size,
        softcap,
        alibi_slopes,
        num_splits,
    ):
        check_kvcache_values(k_cache, k, cache_seqlens, cache_batch_idx, cache_leftpad, block_table)
    else:
        check_kvcache_inputs(
            q,
            k_cache,
            v_cache,
            k=k,
            v=v,
            rotary_cos=rotary_cos,
            rotary_sin=rotary_sin,
            cache_seqlens=cache_seqlens,
            cache_batch_idx=cache_batch_idx,
            cache_leftpad=cache_leftpad,
            block_table=block_table,
            softmax_scale=softmax_scale,
            window_size=window_size,
            softcap=softcap,
            alibi_slopes=alibi_slopes,
            num_splits=num_splits,
        )
    if cache_seqlens is not None and not isinstance(cache_seqlens, Tensor):
        cache_seqlens = torch.full((q.shape[0],), cache_seqlens, dtype=torch.int32, device=q.device)
    backend = ck.kvcache_forward if _on_ck(q) else sdpa_kvcache.forward
    with torch.no_grad() if torch.is_grad_enabled() else nullcontext():
        return backend(
            q,
            k_cache,
            v_cache,
            k=k,
            v=v,
            rotary_cos=rotary_cos,
            rotary_sin=rotary_sin,
            cache_seqlens=cache_seqlens,
            cache_batch_idx=cache_batch_idx,
            cache_leftpad=cache_leftpad,
            block_table=block_table,
            softmax_scale=scale_of(q, softmax_scale),
            window_left=window_size[0],
            window_right=0 if causal else window_size[1],
            softcap=softcap,
            rotary_interleaved=rotary_interleaved,
            alibi_slopes=alibi_slopes,
            num_splits=num_splits,
            want_lse=want_lse,
        )
