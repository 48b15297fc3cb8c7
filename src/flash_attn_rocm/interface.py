"""Public attention functions: the signatures and defaults of flash_attn 2.x, handed to the chosen backend.

Common to all of them:

* float16 and bfloat16, head dims 1 to 256; results have q's dtype, under torch.autocast too, which converts nothing:
  float32 tensors raise there as everywhere.
* softmax_scale: factor on q k^T; headdim ** -0.5 by default.
* causal and window_size=(left, right) align bottom-right: query i sees key j iff
  i + seqlen_k - seqlen_q - left <= j <= i + seqlen_k - seqlen_q + right; negative is unbounded, causal sets right to 0.
* softcap: above 0, scaled scores become softcap * tanh(score / softcap).
* alibi_slopes: float32 (nheads,) or (batch, nheads); -slope * |i + seqlen_k - seqlen_q - j| is added to scores.
* dropout_p: weights are dropped after the softmax where their random byte exceeds floor(255 * (1 - dropout_p)); the
  others are divided by 1 - dropout_p.
* A query that sees no key gives out 0 and lse -inf.
* deterministic: the backward kernels add in a fixed order, so that gradients have the same bits in every run, as with
  torch.use_deterministic_algorithms(True), which governs torch's own operations too.
* return_attn_probs: returns (out, lse, S_dmask) in place of out. lse is the float32 natural log-sum-exp of the scores;
  S_dmask is the uint8 map of dropout's random bytes, empty without dropout; what a mask hides may be 0 there.

They raise:
    InputError: an argument has a wrong rank, dtype, device, shape or value. Values of integer tensors on a GPU are
        checked only with FLASH_ATTN_ROCM_CHECK_VALUES=1, for that waits for the GPU.
    KernelsNotInstalledError: the tensors are on a GPU whose kernel package is not installed.
    KernelUnavailableError: the installed kernels do not cover this request.
"""

from __future__ import annotations

from typing import TypeAlias

from torch import Tensor

from flash_attn_rocm import calls
from flash_attn_rocm.checks import check_packed

Attended: TypeAlias = Tensor | tuple[Tensor, Tensor, Tensor]


def _returned(result: calls.Result, return_attn_probs: bool) -> Attended:
    return (result.out, result.lse, result.dropout_map) if return_attn_probs else result.out


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Attended:
    """Attention softmax(q k^T softmax_scale) v of sequences of one length, with grouped heads; differentiable.

    Args:
        q: (batch, seqlen_q, nheads, headdim).
        k: (batch, seqlen_k, nheads_k, headdim); nheads is a multiple of nheads_k.
        v: like k.

    The other arguments and the errors: see the module.

    Returns:
        out (batch, seqlen_q, nheads, headdim); with return_attn_probs also lse (batch, nheads, seqlen_q) and S_dmask
        (batch, nheads, seqlen_q, seqlen_k).
    """
    result = calls.attention(
        q,
        k,
        v,
        dropout_p=dropout_p,
        softmax_scale=softmax_scale,
        causal=causal,
        window_size=window_size,
        softcap=softcap,
        alibi_slopes=alibi_slopes,
        want_lse=return_attn_probs,
        want_map=return_attn_probs,
        deterministic=deterministic,
    )
    return _returned(result, return_attn_probs)


def flash_attn_kvpacked_func(
    q: Tensor,
    kv: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Attended:
    """`flash_attn_func` with kv (batch, seqlen_k, 2, nheads_k, headdim), whose gradient comes in one tensor too."""
    check_packed("kv", kv, "batch, seqlen, 2, nheads, headdim", 2)
    k, v = kv.unbind(2)
    return flash_attn_func(
        q,
        k,
        v,
        dropout_p,
        softmax_scale,
        causal,
        window_size,
        softcap,
        alibi_slopes,
        deterministic,
        return_attn_probs,
    )


def flash_attn_qkvpacked_func(
    qkv: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Attended:
    """`flash_attn_func` with qkv (batch, seqlen, 3, nheads, headdim), whose gradient comes in one tensor too."""
    check_packed("qkv", qkv, "batch, seqlen, 3, nheads, headdim", 3)
    q, k, v = qkv.unbind(2)
    return flash_attn_func(
        q,
        k,
        v,
        dropout_p,
        softmax_scale,
        causal,
        window_size,
        softcap,
        alibi_slopes,
        deterministic,
        return_attn_probs,
    )


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Tensor | None = None,
) -> Attended:
    """`flash_attn_func` for sequences of several lengths, packed one after another; differentiable.

    Args:
        q: (total_q, nheads, headdim).
        k: (total_k, nheads_k, headdim), or with block_table (num_blocks, page_size, nheads_k, headdim).
        v: like k.
        cu_seqlens_q: int32 (batch + 1), ascending: sequence b is rows cu_seqlens_q[b] up to cu_seqlens_q[b + 1].
            Lengths of 0 are allowed, and a first start above 0.
        cu_seqlens_k: like cu_seqlens_q, for k; with block_table only its lengths count.
        max_seqlen_q: at least the longest sequence of q. A tensor of one number is read, which waits for a GPU.
        max_seqlen_k: at least the longest sequence of k.
        block_table: int32 (batch, max_blocks): the pages of each sequence. No dropout then.

    The other arguments and the errors: see the module.

    Returns:
        out (total_q, nheads, headdim); with return_attn_probs also lse (nheads, total_q) and S_dmask
        (nheads, total_q, max_seqlen_k). Rows that belong to no sequence are undefined.
    """
    result = calls.varlen_attention(
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        dropout_p=dropout_p,
        softmax_scale=softmax_scale,
        causal=causal,
        window_size=window_size,
        softcap=softcap,
        alibi_slopes=alibi_slopes,
        block_table=block_table,
        want_lse=return_attn_probs,
        want_map=return_attn_probs,
        deterministic=deterministic,
    )
    return _returned(result, return_attn_probs)


def flash_attn_varlen_kvpacked_func(
    q: Tensor,
    kv: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Attended:
    """`flash_attn_varlen_func` with kv (total_k, 2, nheads_k, headdim), whose gradient comes in one tensor too."""
    check_packed("kv", kv, "total, 2, nheads, headdim", 2)
    k, v = kv.unbind(1)
    return flash_attn_varlen_func(
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        dropout_p,
        softmax_scale,
        causal,
        window_size,
        softcap,
        alibi_slopes,
        deterministic,
        return_attn_probs,
    )


def flash_attn_varlen_qkvpacked_func(
    qkv: Tensor,
    cu_seqlens: Tensor,
    max_seqlen: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Attended:
    """`flash_attn_varlen_func` with qkv (total, 3, nheads, headdim), whose gradient comes in one tensor too."""
    check_packed("qkv", qkv, "total, 3, nheads, headdim", 3)
    q, k, v = qkv.unbind(1)
    return flash_attn_varlen_func(
        q,
        k,
        v,
        cu_seqlens,
        cu_seqlens,
        max_seqlen,
        max_seqlen,
        dropout_p,
        softmax_scale,
        causal,
        window_size,
        softcap,
        alibi_slopes,
        deterministic,
        return_attn_probs,
    )


def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Tensor | None = None,
    v: Tensor | None = None,
    rotary_cos: Tensor | None = None,
    rotary_sin: Tensor | None = None,
    cache_seqlens: int | Tensor | None = None,
    cache_batch_idx: Tensor | None = None,
    cache_leftpad: Tensor | None = None,
    block_table: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: Tensor | None = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Attention to a KV cache, to which new keys and values are appended in place first; not differentiable.

    Args:
        q: (batch, seqlen_q, nheads, headdim).
        k_cache: (batch_cache, seqlen_cache, nheads_k, headdim), or with block_table
            (num_blocks, page_size, nheads_k, headdim) with pages of any size. Slots that no length reaches may hold
            anything, NaN too.
        v_cache: like k_cache.
        k: (batch, seqlen_new, nheads_k, headdim): new keys, appended after cache_seqlens.
        v: like k; both or neither.
        rotary_cos: (seqlen_ro, rotary_dim / 2) of q's dtype; seqlen_ro at least the slots a sequence has, more by what
            seqlen_q exceeds seqlen_new; rotary_dim a multiple of 16 up to headdim. New keys are rotated to positions
            cache_seqlens and following; queries too with a causal or window mask, else all of them to position
            cache_seqlens. Needs k and v.
        rotary_sin: like rotary_cos; both or neither.
        cache_seqlens: keys in the cache before k is appended: int32 (batch,), or one number for all. None is the whole
            cache, and not possible with k.
        cache_batch_idx: int32 (batch,): the row of the cache of each sequence; not with block_table.
        cache_leftpad: int32 (batch,): the first valid slot of each sequence.
        block_table: int32 (batch, max_blocks): the pages of each sequence. Entries that no length reaches may hold
            anything.
        rotary_interleaved: features (0, 1), (2, 3), ... are rotated together; else i and i + rotary_dim / 2.
        num_splits: parts that the keys are divided into to fill the GPU; 0 chooses.
        return_softmax_lse: also return lse.

    The other arguments and the errors: see the module.

    Returns:
        out (batch, seqlen_q, nheads, headdim); with return_softmax_lse (out, lse), lse (batch, nheads, seqlen_q).
    """
    out, lse = calls.kvcache_attention(
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
        causal=causal,
        window_size=window_size,
        softcap=softcap,
        rotary_interleaved=rotary_interleaved,
        alibi_slopes=alibi_slopes,
        num_splits=num_splits,
        want_lse=return_softmax_lse,
    )
    return (out, lse) if return_softmax_lse else out
