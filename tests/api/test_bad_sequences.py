"""Unusable arguments of the varlen and KV-cache functions give an error with value and allowed values."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from flash_attn_rocm import (
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
    flash_attn_with_kvcache,
)
from flash_attn_rocm.errors import InputError
from flash_attn_rocm.flash_attn_interface import _flash_attn_backward, _flash_attn_varlen_forward


def half(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.float16)


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


Q, K = half(9, 4, 64), half(12, 2, 64)
PAGES = half(6, 16, 2, 64)
VARLEN: dict[str, Any] = {
    "q": Q,
    "k": K,
    "v": K,
    "cu_seqlens_q": ints(0, 4, 9),
    "cu_seqlens_k": ints(0, 5, 12),
    "max_seqlen_q": 5,
    "max_seqlen_k": 7,
}
TABLE = torch.tensor([[0, 1], [2, 3]], dtype=torch.int32)
PAGED = VARLEN | {"k": PAGES, "v": PAGES, "block_table": TABLE}

BAD_VARLEN: dict[str, tuple[dict[str, Any], str]] = {
    "float32": ({"q": Q.float()}, "q torch.float32.*allowed: torch.float16 and torch.bfloat16"),
    "q rank": ({"q": Q[None]}, r"q has 4 dimensions, shape \(1, 9, 4, 64\); expected 3: \(total, nheads, headdim\)"),
    "k rank": ({"k": K[None]}, "k has 4 dimensions"),
    "mixed": ({"k": K.bfloat16()}, "must have one dtype.*k torch.bfloat16"),
    "k and v": ({"v": half(11, 2, 64)}, r"k and v must have the same shape.*v \(11, 2, 64\)"),
    "head dims": ({"q": half(9, 4, 32)}, "head dims of q and k differ"),
    "heads": ({"q": half(9, 3, 64)}, r"nheads of q \(3\) must be a multiple of nheads of k and v \(2\)"),
    "cu list": ({"cu_seqlens_q": [0, 4, 9]}, "cu_seqlens_q is list; expected a torch.Tensor"),
    "cu dtype": ({"cu_seqlens_q": ints(0, 4, 9).long()}, r"cu_seqlens_q is torch.int64; expected torch.int32.*\.to"),
    "cu device": ({"cu_seqlens_k": ints(0, 5, 12).to("meta")}, "cu_seqlens_k is on meta, q on cpu"),
    "cu rank": ({"cu_seqlens_q": ints(0, 4, 9)[None]}, r"cu_seqlens_q has shape \(1, 3\); expected \(any,\)"),
    "cu empty": ({"cu_seqlens_q": ints()}, "cu_seqlens_q is empty; expected batch \\+ 1 values"),
    "cu length": ({"cu_seqlens_k": ints(0, 12)}, r"cu_seqlens_k has shape \(2,\); expected \(3,\)"),
    "cu negative": ({"cu_seqlens_q": ints(-1, 4, 9)}, r"cu_seqlens_q\[0\] is -1; expected 0"),
    "cu order": (
        {"cu_seqlens_q": ints(0, 7, 5)},
        r"cu_seqlens_q is not ascending: cu_seqlens_q\[1\] is 7, .*\[2\] is 5",
    ),
    "cu beyond": ({"cu_seqlens_k": ints(0, 6, 13)}, r"cu_seqlens_k\[-1\] is 13, but k has only 12 rows"),
    "max q": ({"max_seqlen_q": 4}, "max_seqlen_q is 4, but cu_seqlens_q has a sequence of 5"),
    "max k": ({"max_seqlen_k": 6}, "max_seqlen_k is 6, but cu_seqlens_k has a sequence of 7"),
    "max float": ({"max_seqlen_q": 5.0}, "max_seqlen_q is 5.0; expected an integer from 0 to 2147483647"),
    "max tensor": ({"max_seqlen_k": torch.tensor([7, 7])}, r"max_seqlen_k is tensor\(.*; expected an integer"),
    "max fraction": ({"max_seqlen_k": torch.tensor(7.5)}, r"max_seqlen_k is tensor\(7.5000\); expected an integer"),
    "max truth": ({"max_seqlen_q": torch.tensor(True)}, r"max_seqlen_q is tensor\(True\); expected an integer"),
    "max negative": ({"max_seqlen_k": -1}, "max_seqlen_k is -1; expected an integer from 0"),
    "dropout": ({"dropout_p": 1.0}, "dropout_p is 1.0; allowed: 0 <= dropout_p < 1"),
    "window": ({"window_size": 3}, "window_size is 3; expected two integers"),
    "alibi": ({"alibi_slopes": torch.ones(3)}, r"alibi_slopes has shape \(3,\); allowed: \(4,\) or \(2, 4\)"),
}
BAD_PAGED: dict[str, tuple[dict[str, Any], str]] = {
    "rank": ({"k": K, "v": K}, "k has 3 dimensions.*expected 4: \\(num_blocks, page_size, nheads, headdim\\)"),
    "dropout": ({"dropout_p": 0.1}, "dropout_p is 0.1 with a block_table"),
    "table dtype": ({"block_table": TABLE.long()}, "block_table is torch.int64; expected torch.int32"),
    "table batch": ({"block_table": TABLE[:1]}, r"block_table has shape \(1, 2\); expected \(2, any\)"),
    "table value": (
        {"block_table": torch.tensor([[0, 9], [6, 3]], dtype=torch.int32)},
        r"block_table\[\(1, 0\)\] is 6; allowed: 0 to 5 \(the cache has 6 pages\)",
    ),
    "table negative": ({"block_table": TABLE - 1}, r"block_table\[\(0, 0\)\] is -1; allowed: 0 to 5"),
    "too long": (
        {"cu_seqlens_k": ints(0, 5, 38), "max_seqlen_k": 33},
        r"length of k\[1\] is 33; allowed: 0 to 32 \(block_table has 2 pages of 16 a sequence\)",
    ),
    "page size": ({"k": PAGES[:, :0], "v": PAGES[:, :0]}, "the page size is 0"),
}


@pytest.mark.parametrize("name", BAD_VARLEN)
def test_varlen(name: str) -> None:
    change, message = BAD_VARLEN[name]
    flash_attn_varlen_func(**VARLEN)
    with pytest.raises(InputError, match=message):
        flash_attn_varlen_func(**VARLEN | change)


@pytest.mark.parametrize("name", BAD_PAGED)
def test_paged_varlen(name: str) -> None:
    change, message = BAD_PAGED[name]
    with pytest.raises(InputError, match=message):
        flash_attn_varlen_func(**PAGED | change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seqused_k": ints(5, 8)}, r"seqused_k\[1\] is 8; allowed: 0 to 7"),
        ({"seqused_k": ints(5)}, r"seqused_k has shape \(1,\); expected \(2,\)"),
        ({"leftpad_k": ints(0, 8)}, r"leftpad_k\[1\] is 8; allowed: 0 to 7 \(the length of its sequence\)"),
        ({"num_splits": 129}, "num_splits is 129; expected an integer from 0 to 128"),
    ],
)
def test_private_varlen(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        _flash_attn_varlen_forward(**VARLEN, dropout_p=0.0, softmax_scale=1.0, causal=False, **change)


@pytest.mark.parametrize(
    ("function", "tensors", "message"),
    [
        (flash_attn_qkvpacked_func, [half(1, 5, 2, 4, 64)], r"qkv has shape \(1, 5, 2, 4, 64\); expected 5 dimensions"),
        (flash_attn_qkvpacked_func, [half(5, 3, 4, 64)], r"\(batch, seqlen, 3, nheads, headdim\)"),
        (flash_attn_kvpacked_func, [half(1, 5, 4, 64), half(1, 5, 3, 4, 64)], "kv has shape"),
        (flash_attn_varlen_qkvpacked_func, [half(5, 2, 4, 64), ints(0, 5), 5], r"\(total, 3, nheads, headdim\)"),
        (
            flash_attn_varlen_kvpacked_func,
            [half(5, 4, 64), half(5, 4, 64), ints(0, 5), ints(0, 5), 5, 5],
            "kv has shape",
        ),
    ],
)
def test_packed(function: Any, tensors: list[Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        function(*tensors)


CACHE = half(2, 20, 2, 64)
NEW = half(2, 3, 2, 64)
KVCACHE: dict[str, Any] = {"q": half(2, 3, 4, 64), "k_cache": CACHE, "v_cache": CACHE, "cache_seqlens": ints(5, 9)}
ROTARY = {"k": NEW, "v": NEW, "rotary_cos": half(20, 16), "rotary_sin": half(20, 16)}
HIGH_TABLE = torch.tensor([[1, 2], [3, 6]], dtype=torch.int32)
PAGED_CACHE = {"k_cache": PAGES, "v_cache": PAGES, "block_table": TABLE}

BAD_KVCACHE: dict[str, tuple[dict[str, Any], str]] = {
    "float32": ({"k_cache": CACHE.float()}, "k_cache torch.float32.*allowed: torch.float16 and torch.bfloat16"),
    "rank": ({"q": half(2, 4, 64)}, "q has 3 dimensions"),
    "cache rank": ({"k_cache": CACHE[0]}, "k_cache has 3 dimensions"),
    "k and v": ({"v_cache": half(2, 21, 2, 64)}, "k_cache and v_cache must have the same shape"),
    "heads": ({"q": half(2, 3, 5, 64)}, r"nheads of q \(5\) must be a multiple of nheads of k_cache and v_cache \(2\)"),
    "batch": ({"q": half(1, 3, 4, 64), "cache_seqlens": None}, "batch sizes of q and k_cache differ and there is no"),
    "k alone": ({"k": NEW}, "v is None: k and v are appended together"),
    "v alone": ({"v": NEW}, "k is None: k and v are appended together"),
    "new shapes": ({"k": NEW, "v": half(2, 4, 2, 64)}, "k and v must have the same shape"),
    "new heads": ({"k": half(2, 3, 4, 64), "v": half(2, 3, 4, 64)}, "must have the batch of q, and nheads and headdim"),
    "new batch": ({"k": NEW[:1], "v": NEW[:1]}, "must have the batch of q, and nheads and headdim of the cache"),
    "no lengths": ({"k": NEW, "v": NEW, "cache_seqlens": None}, "cache_seqlens is None with k and v"),
    "length type": ({"cache_seqlens": ints(5, 9).long()}, "cache_seqlens is torch.int64; expected torch.int32"),
    "length shape": ({"cache_seqlens": ints(5)}, r"cache_seqlens has shape \(1,\); expected \(2,\)"),
    "length value": ({"cache_seqlens": ints(5, 21)}, r"cache_seqlens\[1\] is 21; allowed: 0 to 20 \(the cache has 20"),
    "length negative": ({"cache_seqlens": ints(-1, 9)}, r"cache_seqlens\[0\] is -1; allowed: 0 to 20"),
    "no room": (
        {"k": NEW, "v": NEW, "cache_seqlens": ints(5, 18)},
        r"cache_seqlens\[1\] is 18; allowed: 0 to 17 \(the cache has 20 slots a sequence and 3 keys are appended\)",
    ),
    "length number": ({"cache_seqlens": 21}, "cache_seqlens is 21; expected an integer from 0 to 20"),
    "length bool": ({"cache_seqlens": True}, "cache_seqlens is True; expected an integer"),
    "index": (
        {"cache_batch_idx": ints(0, 2)},
        r"cache_batch_idx\[1\] is 2; allowed: 0 to 1 \(k_cache has batch size 2\)",
    ),
    "index shape": ({"cache_batch_idx": ints(0)}, r"cache_batch_idx has shape \(1,\); expected \(2,\)"),
    "leftpad": ({"cache_leftpad": ints(0, 10)}, r"cache_leftpad\[1\] is 10; allowed: 0 to 9"),
    "leftpad beyond number": (
        {"cache_seqlens": 5, "cache_leftpad": ints(3, 7)},
        r"cache_leftpad\[1\] is 7; allowed: 0 to 5",
    ),
    "expanded sequences": (
        {"k": NEW, "v": NEW, "k_cache": CACHE[:1].expand(2, 20, 2, 64)},
        r"k_cache has shape \(2, 20, 2, 64\) and strides \(0, .*: it is expanded, so that k and v cannot be appended",
    ),
    "expanded heads": ({"k": NEW, "v": NEW, "v_cache": CACHE[:, :, :1].expand(2, 20, 2, 64)}, "v_cache has shape"),
    "splits": ({"num_splits": -1}, "num_splits is -1; expected an integer from 0 to 128"),
    "softcap": ({"softcap": -1.0}, "softcap is -1.0"),
    "alibi": ({"alibi_slopes": torch.ones(4, dtype=torch.float16)}, "alibi_slopes is torch.float16"),
    "rotary alone": (ROTARY | {"k": None, "v": None}, "rotary_cos is given without k and v"),
    "cos alone": (ROTARY | {"rotary_sin": None}, "rotary_sin is None; give rotary_cos and rotary_sin, or neither"),
    "rotary dtype": (ROTARY | {"rotary_cos": half(20, 16).float()}, "rotary_cos is torch.float32 on cpu; expected"),
    "rotary shapes": (
        ROTARY | {"rotary_sin": half(20, 8)},
        r"rotary_cos has shape \(20, 16\) and rotary_sin \(20, 8\)",
    ),
    "rotary dim": (
        ROTARY | {"rotary_cos": half(20, 12), "rotary_sin": half(20, 12)},
        "rotary_dim is 24 .*expected a multiple of 16 up to the head dim, 64",
    ),
    "rotary rows": (
        ROTARY | {"rotary_cos": half(19, 16), "rotary_sin": half(19, 16)},
        "rotary_cos has 19 rows; expected at least 20",
    ),
    "paged index": (PAGED_CACHE | {"cache_batch_idx": ints(0, 1)}, "cache_batch_idx and block_table are both given"),
    "paged length": (
        PAGED_CACHE | {"cache_seqlens": ints(5, 33)},
        r"cache_seqlens\[1\] is 33; allowed: 0 to 32 \(the cache has 32 slots a sequence\)",
    ),
    "paged table": (
        PAGED_CACHE | {"block_table": TABLE + 4, "cache_seqlens": ints(5, 9)},
        r"block_table\[\(1, 0\)\] is 6; allowed: 0 to 5",
    ),
    "paged append": (
        PAGED_CACHE | {"k": NEW, "v": NEW, "cache_seqlens": ints(5, 14), "block_table": HIGH_TABLE},
        r"block_table\[\(1, 1\)\] is 6; allowed: 0 to 5",
    ),
}


@pytest.mark.parametrize("name", BAD_KVCACHE)
def test_kvcache(name: str) -> None:
    change, message = BAD_KVCACHE[name]
    flash_attn_with_kvcache(**KVCACHE)
    before = CACHE.clone()
    with pytest.raises(InputError, match=message):
        flash_attn_with_kvcache(**KVCACHE | change)
    assert torch.equal(CACHE, before)


def test_entries_that_no_length_reaches_may_hold_anything() -> None:
    table = torch.tensor([[0, -1], [2, 10**6]], dtype=torch.int32)
    flash_attn_with_kvcache(**KVCACHE | PAGED_CACHE | {"block_table": table, "cache_seqlens": ints(16, 9)})
    flash_attn_varlen_func(**PAGED | {"block_table": table})


def test_a_tensor_of_one_number_is_a_length() -> None:
    """transformers hands the longest sequence over as a tensor where it packs sequences by their positions."""
    expected = flash_attn_varlen_func(**VARLEN)
    got = flash_attn_varlen_func(**VARLEN | {"max_seqlen_q": torch.tensor(5), "max_seqlen_k": torch.tensor(7)})
    assert torch.equal(got, expected)


def test_numbers_and_tensors_of_lengths_are_the_same() -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 20, 2, 64, generator=generator).half() for _ in range(3))
    expected = flash_attn_with_kvcache(q[:, :3], k, v, cache_seqlens=ints(7, 7))
    assert torch.equal(flash_attn_with_kvcache(q[:, :3], k, v, cache_seqlens=7), expected)


def test_maxima_beyond_all_sequences_cost_nothing() -> None:
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(*tensor.shape, generator=generator).half() for tensor in (Q, K))
    expected = flash_attn_varlen_func(**VARLEN | {"q": q, "k": k, "v": k})
    largest = {"max_seqlen_q": 2**31 - 1, "max_seqlen_k": 2**31 - 1}  # padded to them, scores would have 2^65 bytes
    assert torch.equal(flash_attn_varlen_func(**VARLEN | {"q": q, "k": k, "v": k} | largest), expected)


@pytest.mark.parametrize("name", ["dq", "dk", "dv"])
@pytest.mark.parametrize(
    "change", [lambda t: t.float(), lambda t: t[None].expand(3, *t.shape).clone(), lambda t: t.to("meta")]
)
def test_gradient_buffers(name: str, change: Any) -> None:
    q, lse = half(1, 5, 2, 64), torch.zeros(1, 2, 5)
    buffers = {"dq": q.clone(), "dk": q.clone(), "dv": q.clone()}
    buffers[name] = change(q)
    with pytest.raises(InputError, match=rf"{name} is torch.float.* on .*; expected that of {name[1]}: torch.float16"):
        _flash_attn_backward(q, q, q, q, q, lse, *buffers.values(), 0.0, 1.0, False, -1, -1, 0.0, None, False)


def test_backward_shapes() -> None:
    q = half(1, 5, 2, 64)
    lse = torch.zeros(1, 2, 5)
    rest = (q, q, q, 0.0, 1.0, False, -1, -1, 0.0, None, False)
    with pytest.raises(InputError, match=r"softmax_lse has shape \(1, 5, 2\); expected \(1, 2, 5\)"):
        _flash_attn_backward(q, q, q, q, q, lse.transpose(1, 2), *rest)
    with pytest.raises(InputError, match=r"dout has shape \(1, 4, 2, 64\); expected \(1, 5, 2, 64\)"):
        _flash_attn_backward(q[:, 1:], q, q, q, q, lse, *rest)
    with pytest.raises(InputError, match=r"softmax_lse is torch.float16 on cpu; expected torch.float32 on cpu"):
        _flash_attn_backward(q, q, q, q, q, lse.half(), *rest)
    with pytest.raises(InputError, match=r"dout is torch.float32 on cpu; expected torch.float16 on cpu"):
        _flash_attn_backward(q.float(), q, q, q, q, lse, *rest)
    with pytest.raises(InputError, match=r"out is torch.float16 on meta; expected torch.float16 on cpu"):
        _flash_attn_backward(q, q, q, q, q.to("meta"), lse, *rest)
