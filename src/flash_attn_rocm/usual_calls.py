"""Recognises the calls that most programs make, in a microsecond or two: what every check would let pass.

Each function is True only where the checks of checks.py and checks_sequences.py would raise nothing; where it is False
they decide, and say what is wrong. Calls that torch.compile traces are never looked at here. Arguments come by
position: that is quicker.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from flash_attn_rocm.limits import DTYPES, FLOAT_MAX, FLOAT_MIN, INT32_MAX, INT32_MIN, MAX_HEAD_DIM, MAX_SPLITS

# Subclasses may answer anything.
_PLAIN = frozenset({Tensor, torch.nn.Parameter})
_STRIDED = torch.strided


def _scoring(dropout_p: Any, softmax_scale: Any, window_size: Any, softcap: Any) -> bool:
    """Plain Python numbers in range."""
    if window_size != (-1, -1):
        if type(window_size) is not tuple or len(window_size) != 2:
            return False
        left, right = window_size
        if not (type(left) is int and type(right) is int):
            return False
        if not (INT32_MIN <= left <= INT32_MAX and INT32_MIN <= right <= INT32_MAX):
            return False
    return (
        type(dropout_p) is float
        and 0.0 <= dropout_p < 1.0
        and (softmax_scale is None or (type(softmax_scale) is float and FLOAT_MIN <= softmax_scale <= FLOAT_MAX))
        and type(softcap) is float
        and (softcap == 0.0 or FLOAT_MIN <= softcap <= FLOAT_MAX)
    )


def _dense(tensor: Any, dtype: torch.dtype, device: torch.device) -> bool:
    return (
        type(tensor) in _PLAIN
        and tensor.dtype is dtype
        and tensor.layout is _STRIDED
        and not tensor.is_nested
        and bool(tensor.device == device)
    )


def _tensors(q: Any, k: Any, v: Any, rank_q: int, rank_k: int) -> bool:
    """Dense 16-bit tensors of these ranks on one device; k and v alike, with heads and head dims that go with q's."""
    if is_compiling() or type(q) not in _PLAIN:
        return False
    dtype, device = q.dtype, q.device
    if dtype not in DTYPES:
        return False
    if q.layout is not _STRIDED or q.is_nested or not (_dense(k, dtype, device) and _dense(v, dtype, device)):
        return False
    shape_q, shape_k = q.shape, k.shape
    if len(shape_q) != rank_q or len(shape_k) != rank_k or v.shape != shape_k:
        return False
    heads_k, headdim = shape_k[-2], shape_k[-1]
    return bool(shape_q[-1] == headdim and 1 <= headdim <= MAX_HEAD_DIM and heads_k > 0 and shape_q[-2] % heads_k == 0)


def _row(tensor: Any, device: torch.device, length: int) -> bool:
    """A dense int32 tensor of one dimension on the device."""
    return _dense(tensor, torch.int32, device) and tensor.shape == (length,)


def _table(tensor: Any, device: torch.device, rows: int) -> bool:
    """A dense int32 tensor of two dimensions on the device."""
    return _dense(tensor, torch.int32, device) and len(tensor.shape) == 2 and bool(tensor.shape[0] == rows)


def _count(value: Any, most: int) -> bool:
    """A Python integer from 0."""
    return type(value) is int and 0 <= value <= most


def batch(
    q: Any,
    k: Any,
    v: Any,
    dropout_p: Any,
    softmax_scale: Any,
    window_size: Any,
    softcap: Any,
    alibi_slopes: Any,
) -> bool:
    """A call with sequences of one length."""
    return (
        alibi_slopes is None
        and _scoring(dropout_p, softmax_scale, window_size, softcap)
        and _tensors(q, k, v, 4, 4)
        and bool(q.shape[0] == k.shape[0])
    )


def varlen(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: Any,
    max_seqlen_k: Any,
    seqused_k: Any,
    leftpad_k: Any,
    block_table: Any,
    dropout_p: Any,
    softmax_scale: Any,
    window_size: Any,
    softcap: Any,
    alibi_slopes: Any,
    num_splits: Any,
) -> bool:
    """A call with sequences of several lengths, but for the values of its tables."""
    paged = block_table is not None
    if alibi_slopes is not None or leftpad_k is not None or (paged and dropout_p):
        return False
    if not (_scoring(dropout_p, softmax_scale, window_size, softcap) and _tensors(q, k, v, 3, 4 if paged else 3)):
        return False
    device = q.device
    if not _dense(cu_seqlens_q, torch.int32, device) or len(cu_seqlens_q.shape) != 1 or cu_seqlens_q.shape[0] < 1:
        return False
    bounds: int = cu_seqlens_q.shape[0]
    return (
        (cu_seqlens_k is cu_seqlens_q or _row(cu_seqlens_k, device, bounds))
        and (seqused_k is None or _row(seqused_k, device, bounds - 1))
        and (not paged or (_table(block_table, device, bounds - 1) and bool(k.shape[1] > 0)))
        and _count(max_seqlen_q, INT32_MAX)
        and _count(max_seqlen_k, INT32_MAX)
        and _count(num_splits, MAX_SPLITS)
    )


def _appended(k: Any, v: Any, k_cache: Tensor, v_cache: Tensor, entries: int) -> bool:
    """New keys and values of `entries` sequences that fit caches which have memory of its own for each slot."""
    if not (_dense(k, k_cache.dtype, k_cache.device) and _dense(v, k_cache.dtype, k_cache.device)):
        return False
    shape = k.shape
    return (
        len(shape) == 4
        and v.shape == shape
        and bool(shape[0] == entries)
        and shape[2:] == k_cache.shape[2:]
        and 0 not in k_cache.stride()
        and 0 not in v_cache.stride()
    )


def kvcache(
    q: Any,
    k_cache: Any,
    v_cache: Any,
    k: Any,
    v: Any,
    rotary_cos: Any,
    rotary_sin: Any,
    cache_seqlens: Any,
    cache_batch_idx: Any,
    cache_leftpad: Any,
    block_table: Any,
    softmax_scale: Any,
    window_size: Any,
    softcap: Any,
    alibi_slopes: Any,
    num_splits: Any,
) -> bool:
    """A call on a KV cache, with new keys or without, but for the values of its tables."""
    if not (rotary_cos is rotary_sin is cache_batch_idx is cache_leftpad is alibi_slopes is None):
        return False
    if not (_scoring(0.0, softmax_scale, window_size, softcap) and _tensors(q, k_cache, v_cache, 4, 4)):
        return False
    device, entries = q.device, q.shape[0]
    appending = k is not None or v is not None
    if appending and (cache_seqlens is None or not _appended(k, v, k_cache, v_cache, entries)):
        return False
    if block_table is None:
        fits = bool(k_cache.shape[0] == entries)
    else:
        fits = _table(block_table, device, entries) and bool(k_cache.shape[1] > 0)
    return (
        fits
        and (cache_seqlens is None or type(cache_seqlens) is int or _row(cache_seqlens, device, entries))
        and _count(num_splits, MAX_SPLITS)
    )
