"""What the functions for sequences of several lengths and for KV caches accept.

Values of integer tensors (lengths, page numbers) are checked where the host can read them: CPU tensors, outside of
torch.compile. On a GPU reading them would wait for it; there they are checked only with FLASH_ATTN_ROCM_CHECK_VALUES=1.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from flash_attn_rocm import environment
from flash_attn_rocm.checks import (
    check_alibi,
    check_attention_tensors,
    check_heads,
    check_integer,
    check_layout,
    check_scoring,
    describe_shapes,
)
from flash_attn_rocm.errors import InputError
from flash_attn_rocm.limits import INT32_MAX, MAX_SPLITS, capacity_of


def _readable(tensor: Tensor) -> bool:
    """Whether the values are to be checked: they can be read without waiting for a GPU, or CHECK_VALUES wants that.

    Never those of traced tensors; nor any where CHECK_VALUES is 0.
    """
    if torch.compiler.is_compiling() or type(tensor) not in (Tensor, torch.nn.Parameter):
        return False
    asked = environment.check_values()
    if asked is False or (asked is None and tensor.device.type != "cpu"):
        return False
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return False
    on_gpu = tensor.device.type == "cuda"
    return tensor.device.type == "cpu" or (on_gpu and not torch.cuda.is_current_stream_capturing())


def _check_int32(name: str, tensor: Any, q: Tensor, shape: tuple[int | None, ...]) -> None:
    """An int32 tensor on q's device; None in the shape is any size."""
    check_layout(name, tensor)
    if tensor.dtype != torch.int32:
        raise InputError(f"{name} is {tensor.dtype}; expected torch.int32. Convert it: {name}.to(torch.int32)")
    if tensor.device != q.device:
        raise InputError(f"{name} is on {tensor.device}, q on {q.device}; they must be on one device")
    fits = tensor.dim() == len(shape) and all(
        want is None or size == want for size, want in zip(tensor.shape, shape, strict=False)
    )
    if not fits:
        expected = ", ".join("any" if want is None else str(want) for want in shape)
        raise InputError(f"{name} has shape {tuple(tensor.shape)}; expected ({expected}{',' * (len(shape) == 1)})")


def _check_range(name: str, values: Tensor, least: int | Tensor, most: int | Tensor, what: str) -> None:
    """Every value lies within bounds, those included; the first that does not is named."""
    bad = ((values < least) | (values > most)).nonzero()
    if bad.numel() == 0:
        return
    index = tuple(int(i) for i in bad[0])
    at = index if len(index) > 1 else index[0]
    bounds = [int(b[index]) if isinstance(b, Tensor) else b for b in (least, most)]
    raise InputError(f"{name}[{at}] is {int(values[index])}; allowed: {bounds[0]} to {bounds[1]} ({what})")


def _check_cu_seqlens(name: str, cu_seqlens: Tensor, total: int | None, max_seqlen: int, rows: str) -> None:
    """Values: not negative, ascending, within the tensor, no sequence longer than the given maximum."""
    values = cu_seqlens.detach().cpu().to(torch.int64)
    lengths = values[1:] - values[:-1]
    if int(values[0]) < 0:
        raise InputError(f"{name}[0] is {int(values[0])}; expected 0 or more: where the first sequence starts")
    if lengths.numel() and int(lengths.min()) < 0:
        at = int(lengths.argmin())
        raise InputError(
            f"{name} is not ascending: {name}[{at}] is {int(values[at])}, {name}[{at + 1}] is {int(values[at + 1])}"
        )
    if total is not None and int(values[-1]) > total:
        raise InputError(f"{name}[-1] is {int(values[-1])}, but {rows} has only {total} rows (its first dimension)")
    if lengths.numel() and int(lengths.max()) > max_seqlen:
        suffix = name.removeprefix("cu_seqlens")
        raise InputError(
            f"max_seqlen{suffix} is {max_seqlen}, but {name} has a sequence of {int(lengths.max())}; "
            "it must be at least the longest sequence"
        )


def _check_block_table(block_table: Tensor, used: Tensor | None, num_blocks: int, page_size: int) -> None:
    """Values: every entry that a length reaches names a page; the others may hold anything."""
    if not _readable(block_table) or (used is not None and not _readable(used)):
        return
    table = block_table.detach().cpu()
    if used is not None:
        pages = (used.detach().cpu().to(torch.int64) + page_size - 1) // page_size
        table = torch.where(torch.arange(table.shape[1]) < pages[:, None], table, 0)
    _check_range("block_table", table, 0, num_blocks - 1, f"the cache has {num_blocks} pages")


def _check_pages(pages: Tensor) -> None:
    if pages.shape[1] < 1:
        raise InputError(f"the page size is 0, of k and v with shape {tuple(pages.shape)}; it must be at least 1")


def check_varlen_inputs(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    *,
    seqused_k: Tensor | None,
    leftpad_k: Tensor | None,
    block_table: Tensor | None,
    dropout_p: float,
    softmax_scale: float | None,
    window_size: tuple[int, int],
    softcap: float,
    alibi_slopes: Tensor | None,
    num_splits: int,
) -> None:
    """Check the arguments of an attention call with sequences of several lengths.

    Raises:
        InputError: names the argument, its value and what is allowed.
    """
    _check_varlen_tensors(q, k, v, cu_seqlens_q, cu_seqlens_k, seqused_k, leftpad_k, block_table, alibi_slopes)
    check_scoring(dropout_p=dropout_p, softmax_scale=softmax_scale, window_size=window_size, softcap=softcap)
    check_integer("max_seqlen_q", max_seqlen_q, 0, INT32_MAX)
    check_integer("max_seqlen_k", max_seqlen_k, 0, INT32_MAX)
    check_integer("num_splits", num_splits, 0, MAX_SPLITS)
    if block_table is not None and dropout_p > 0.0:
        raise InputError(f"dropout_p is {dropout_p} with a block_table; a paged cache has no dropout: set it to 0")
    check_varlen_values(q, k, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_k, leftpad_k, block_table)


def _check_varlen_tensors(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    seqused_k: Tensor | None,
    leftpad_k: Tensor | None,
    block_table: Tensor | None,
    alibi_slopes: Tensor | None,
) -> None:
    named = {"q": q, "k": k, "v": v}
    keys = "total, nheads, headdim" if block_table is None else "num_blocks, page_size, nheads, headdim"
    check_attention_tensors(named, {"q": "total, nheads, headdim", "k": keys, "v": keys})
    check_heads(named)
    _check_int32("cu_seqlens_q", cu_seqlens_q, q, (None,))
    if cu_seqlens_q.shape[0] < 1:
        raise InputError("cu_seqlens_q is empty; expected batch + 1 values, one more than there are sequences")
    batch = cu_seqlens_q.shape[0] - 1
    _check_int32("cu_seqlens_k", cu_seqlens_k, q, (batch + 1,))
    if alibi_slopes is not None:
        check_alibi(q, alibi_slopes, batch)
    for name, tensor in (("seqused_k", seqused_k), ("leftpad_k", leftpad_k)):
        if tensor is not None:
            _check_int32(name, tensor, q, (batch,))
    if block_table is not None:
        _check_int32("block_table", block_table, q, (batch, None))
        _check_pages(k)


def check_varlen_values(
    q: Tensor,
    k: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    seqused_k: Tensor | None,
    leftpad_k: Tensor | None,
    block_table: Tensor | None,
) -> None:
    """Check what stands in the tables of a call whose tensors fit together, where it is to be looked at.

    Raises:
        InputError: names the table, the value and what is allowed.
    """
    if _readable(cu_seqlens_q):
        _check_cu_seqlens("cu_seqlens_q", cu_seqlens_q, q.shape[0], max_seqlen_q, "q")
    if not _readable(cu_seqlens_k):
        return
    # With seqused_k or pages, cu_seqlens_k only says where keys lie, or nothing.
    longest = max_seqlen_k if seqused_k is None else INT32_MAX
    _check_cu_seqlens("cu_seqlens_k", cu_seqlens_k, None if block_table is not None else k.shape[0], longest, "k")
    lengths = (cu_seqlens_k[1:] - cu_seqlens_k[:-1]).detach().cpu()
    if seqused_k is not None and _readable(seqused_k):
        room = lengths if block_table is None else block_table.shape[1] * k.shape[1]
        limit = torch.as_tensor(room).clamp(max=max_seqlen_k).expand(lengths.shape)
        what = "its sequence in cu_seqlens_k, or block_table's pages, and max_seqlen_k"
        _check_range("seqused_k", seqused_k.detach().cpu(), 0, limit, what)
        lengths = seqused_k.detach().cpu()
    if leftpad_k is not None and _readable(leftpad_k):
        _check_range("leftpad_k", leftpad_k.detach().cpu(), 0, lengths, "the length of its sequence")
    if block_table is not None:
        capacity = capacity_of(k, block_table)
        what = f"block_table has {block_table.shape[1]} pages of {k.shape[1]} a sequence"
        _check_range("length of k", lengths, 0, capacity, what)
        _check_block_table(block_table, lengths, k.shape[0], k.shape[1])


def check_kvcache_inputs(
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
    window_size: tuple[int, int],
    softcap: float,
    alibi_slopes: Tensor | None,
    num_splits: int,
) -> None:
    """Check the arguments of an attention call on a KV cache.

    Raises:
        InputError: names the argument, its value and what is allowed.
    """
    check_scoring(softmax_scale=softmax_scale, window_size=window_size, softcap=softcap)
    check_integer("num_splits", num_splits, 0, MAX_SPLITS)
    capacity = _check_kvcache_tensors(
        q, k_cache, v_cache, k, v, cache_seqlens, cache_batch_idx, cache_leftpad, block_table, alibi_slopes
    )
    if rotary_cos is not None or rotary_sin is not None:
        _check_rotary(q, k, rotary_cos, rotary_sin, capacity)
    check_kvcache_values(k_cache, k, cache_seqlens, cache_batch_idx, cache_leftpad, block_table)


def _check_kvcache_tensors(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    cache_seqlens: int | Tensor | None,
    cache_batch_idx: Tensor | None,
    cache_leftpad: Tensor | None,
    block_table: Tensor | None,
    alibi_slopes: Tensor | None,
) -> int:
    """Check everything but values; the slots that a sequence has in the cache."""
    cache_layout = "batch, seqlen, nheads, headdim" if block_table is None else "num_blocks, page_size, nheads, headdim"
    layouts = {"q": "batch, seqlen, nheads, headdim", "k_cache": cache_layout, "v_cache": cache_layout}
    named = {"q": q, "k_cache": k_cache, "v_cache": v_cache}
    if (k is None) != (v is None):
        missing = "v is None: k and v" if v is None else "k is None: k and v"
        raise InputError(f"{missing} are appended together; give both or neither")
    if k is not None and v is not None:
        named |= {"k": k, "v": v}
        layouts |= dict.fromkeys(("k", "v"), "batch, seqlen, nheads, headdim")
    check_attention_tensors(named, layouts)
    check_heads(named)
    batch = q.shape[0]
    if k is not None and v is not None:
        _check_appended(named, cache_seqlens)
    if alibi_slopes is not None:
        check_alibi(q, alibi_slopes, batch)
    if block_table is not None:
        _check_int32("block_table", block_table, q, (batch, None))
        _check_pages(k_cache)
        if cache_batch_idx is not None:
            raise InputError("cache_batch_idx and block_table are both given; the pages of block_table choose already")
    elif cache_batch_idx is None and k_cache.shape[0] != batch:
        raise InputError(
            f"batch sizes of q and k_cache differ and there is no cache_batch_idx: {describe_shapes(named)}"
        )
    if isinstance(cache_seqlens, Tensor):
        _check_int32("cache_seqlens", cache_seqlens, q, (batch,))
    for name, tensor in (("cache_batch_idx", cache_batch_idx), ("cache_leftpad", cache_leftpad)):
        if tensor is not None:
            _check_int32(name, tensor, q, (batch,))
    return capacity_of(k_cache, block_table)


def _check_appended(named: dict[str, Tensor], cache_seqlens: Any) -> None:
    q, k_cache, k, v = (named[name] for name in ("q", "k_cache", "k", "v"))
    if k.shape != v.shape:
        raise InputError(f"k and v must have the same shape, but: {describe_shapes(named)}")
    if k.shape[0] != q.shape[0] or tuple(k.shape[2:]) != tuple(k_cache.shape[2:]):
        raise InputError(
            f"k and v must have the batch of q, and nheads and headdim of the cache, but: {describe_shapes(named)}"
        )
    for name in ("k_cache", "v_cache"):
        _check_no_shared_slots(name, named[name])
    if cache_seqlens is None:
        raise InputError("cache_seqlens is None with k and v; expected the lengths after which they are appended")


def _check_no_shared_slots(name: str, cache: Tensor) -> None:
    """What is written for one sequence, slot or head of an expanded cache would be there for all of them."""
    if any(size > 1 and stride == 0 for size, stride in zip(cache.shape, cache.stride(), strict=True)):
        raise InputError(
            f"{name} has shape {tuple(cache.shape)} and strides {cache.stride()}: it is expanded, so that k and v "
            f"cannot be appended to it. Pass memory of its own: {name}.contiguous()"
        )


def _check_rotary(q: Tensor, k: Tensor | None, cos: Tensor | None, sin: Tensor | None, capacity: int) -> None:
    if cos is None or sin is None:
        raise InputError(
            f"rotary_{'cos' if cos is None else 'sin'} is None; give rotary_cos and rotary_sin, or neither"
        )
    if k is None:
        raise InputError("rotary_cos is given without k and v; only new keys, and queries with them, are rotated")
    for name, tensor in (("rotary_cos", cos), ("rotary_sin", sin)):
        check_layout(name, tensor)
        if tensor.dtype != q.dtype or tensor.device != q.device:
            raise InputError(
                f"{name} is {tensor.dtype} on {tensor.device}; expected dtype and device of q, {q.dtype} on {q.device}"
            )
    if cos.dim() != 2 or cos.shape != sin.shape:
        raise InputError(
            f"rotary_cos has shape {tuple(cos.shape)} and rotary_sin {tuple(sin.shape)}; "
            "expected (seqlen_ro, rotary_dim / 2) of both"
        )
    rotary_dim = 2 * cos.shape[1]
    if rotary_dim == 0 or rotary_dim % 16 != 0 or rotary_dim > q.shape[-1]:
        raise InputError(
            f"rotary_dim is {rotary_dim} (twice rotary_cos.shape[1]); expected a multiple of 16 up to the head dim, "
            f"{q.shape[-1]}"
        )
    needed = capacity + max(0, q.shape[1] - k.shape[1])
    if cos.shape[0] < needed:
        raise InputError(
            f"rotary_cos has {cos.shape[0]} rows; expected at least {needed}, one for each position of a key or query "
            f" ({capacity} slots a sequence, seqlen_q {q.shape[1]}, {k.shape[1]} new keys)"
        )


def check_kvcache_values(
    k_cache: Tensor,
    k: Tensor | None,
    cache_seqlens: int | Tensor | None,
    cache_batch_idx: Tensor | None,
    cache_leftpad: Tensor | None,
    block_table: Tensor | None,
) -> None:
    """Check lengths, and what stands in the tables of a call whose tensors fit together, where it is to be looked at.

    Raises:
        InputError: names the table, the value and what is allowed.
    """
    appended, capacity = 0 if k is None else k.shape[1], capacity_of(k_cache, block_table)
    what = f"the cache has {capacity} slots a sequence" + (f" and {appended} keys are appended" if appended else "")
    if cache_seqlens is not None and not isinstance(cache_seqlens, Tensor):
        check_integer("cache_seqlens", cache_seqlens, 0, capacity - appended)
    elif appended > capacity:
        raise InputError(f"k and v have {appended} keys, more than the cache's {capacity} slots a sequence")
    lengths = cache_seqlens if isinstance(cache_seqlens, Tensor) and _readable(cache_seqlens) else None
    if lengths is not None:
        _check_range("cache_seqlens", lengths.detach().cpu(), 0, capacity - appended, what)
    if cache_batch_idx is not None and _readable(cache_batch_idx):
        rows = cache_batch_idx.detach().cpu()
        _check_range("cache_batch_idx", rows, 0, k_cache.shape[0] - 1, f"k_cache has batch size {k_cache.shape[0]}")
    if cache_leftpad is not None and _readable(cache_leftpad):
        most: int | Tensor = capacity if lengths is None else lengths.detach().cpu()
        if lengths is None and cache_seqlens is not None and not isinstance(cache_seqlens, Tensor):
            most = cache_seqlens
        _check_range("cache_leftpad", cache_leftpad.detach().cpu(), 0, most, "the sequence's length in the cache")
    if block_table is not None and _readable(block_table):
        if isinstance(cache_seqlens, Tensor) and lengths is None:
            return
        if cache_seqlens is None:
            used = torch.full((block_table.shape[0],), capacity)
        else:
            used = torch.as_tensor(cache_seqlens).detach().cpu().expand(block_table.shape[0]) + appended
        _check_block_table(block_table, used, k_cache.shape[0], k_cache.shape[1])
