"""Attention with a KV cache through the op kvcache_fwd, against float64: lengths, pages, append, rotation, parts."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from flash_attn_rocm import flash_attn_with_kvcache
from flash_attn_rocm.errors import KernelUnavailableError
from flash_attn_rocm.flash_attn_interface import _flash_attn_varlen_forward
from tests.kernels.feature_reference import Features, check_result
from tests.kernels.test_features import SCALE, load_ops, normal

NAN = float("nan")
FULL, CAUSAL, WINDOW = Features(), Features(causal=True), Features(window=(20, 7))


@dataclass(frozen=True)
class Case:
    """One call. Lengths are keys before new ones; page 0: the cache is in one piece."""

    lengths: tuple[int, ...] | None = (70, 0, 129)
    seqlen_q: int = 1
    heads: tuple[int, int] = (4, 2)
    hdim: int = 64
    dtype: torch.dtype = torch.bfloat16
    capacity: int = 192
    new: int = 0
    page: int = 0
    leftpads: tuple[int, ...] | None = None
    batch_idx: tuple[int, ...] | None = None
    rotary_dim: int = 0
    interleaved: bool = True
    features: Features = FULL
    slopes: Tensor | None = None
    num_splits: int = 0
    odd_rows: bool = False  # rows of the cache begin at odd multiples of 2 bytes

    @property
    def batch(self) -> int:
        """Batch entries of q."""
        return 3 if self.lengths is None else len(self.lengths)


def int32(values: tuple[int, ...] | None, device: str) -> Tensor | None:
    """A table of the op."""
    return None if values is None else torch.tensor(values, dtype=torch.int32, device=device)


def make_cache(case: Case, seed: int) -> Tensor:
    """(batch entries, capacity, heads, head dim) of ordinary numbers."""
    entries = case.batch if case.batch_idx is None else max(case.batch_idx) + 1
    return normal(entries, case.capacity, case.heads[1], case.hdim, dtype=case.dtype, seed=seed)


def rotate(row: Tensor, cosine: Tensor, sine: Tensor, interleaved: bool) -> Tensor:
    """Rotate rows (n, heads, head dim) by angles (n, rotary_dim / 2): in float32, rounded once, by the definition."""
    half = cosine.shape[1]
    x = row.float().clone()
    first, second = (
        (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else (slice(0, half), slice(half, 2 * half))
    )
    a, b = x[..., first].clone(), x[..., second].clone()
    c, s = cosine.float()[:, None, :], sine.float()[:, None, :]
    x[..., first], x[..., second] = a * c - b * s, b * c + a * s
    return x.to(row.dtype)


def lay_out(case: Case, cache: Tensor, used: list[int], device: str) -> tuple[Tensor, Tensor | None]:
    """The cache as the op gets it, NaN wherever no key is, and the table of its pages."""
    poisoned = torch.full_like(cache, NAN)
    for b, length in enumerate(used):
        entry = b if case.batch_idx is None else case.batch_idx[b]
        first = 0 if case.leftpads is None else case.leftpads[b]
        poisoned[entry, first:length] = cache[entry, first:length]
    if not case.page:
        if case.odd_rows:
            wide = torch.full((*cache.shape[:3], case.hdim + 1), NAN, dtype=cache.dtype, device=device)
            wide[..., 1:] = poisoned.to(device)
            return wide[..., 1:], None
        return poisoned.to(device), None
    pages = case.capacity // case.page
    order = torch.randperm(2 * case.batch * pages, generator=torch.Generator().manual_seed(5))[: case.batch * pages]
    store = torch.full((2 * case.batch * pages, case.page, case.heads[1], case.hdim), NAN, dtype=cache.dtype)
    store[order] = poisoned.reshape(-1, case.page, case.heads[1], case.hdim)
    return store.to(device), order.reshape(case.batch, pages).to(torch.int32).to(device)


def read_back(case: Case, store: Tensor, table: Tensor | None) -> Tensor:
    """The cache as (batch entries, capacity, heads, head dim)."""
    if table is None:
        return store.cpu()
    return store.cpu()[table.cpu().long()].reshape(case.batch, case.capacity, case.heads[1], case.hdim)


def run(device: str, case: Case) -> None:
    """Call the op and compare output, LSE and cache."""
    lengths = [case.capacity] * case.batch if case.lengths is None else list(case.lengths)
    q = normal(case.batch, case.seqlen_q, case.heads[0], case.hdim, dtype=case.dtype)
    k_cache, v_cache = make_cache(case, 1), make_cache(case, 2)
    k_new, v_new = (
        normal(case.batch, case.new, case.heads[1], case.hdim, dtype=case.dtype, seed=seed) for seed in (3, 4)
    )
    angles = torch.rand(case.capacity, case.rotary_dim // 2, generator=torch.Generator().manual_seed(9)) * 6
    cosine, sine = angles.cos().to(case.dtype), angles.sin().to(case.dtype)
    (k_store, table), (v_store, _) = (
        lay_out(case, k_cache, lengths, device),
        lay_out(case, v_cache, lengths, device),
    )
    window = case.features.window
    right = 0 if case.features.causal else window[1]
    out, lse = load_ops().kvcache_fwd(
        q.to(device),
        k_store,
        v_store,
        k_new.to(device) if case.new else None,
        v_new.to(device) if case.new else None,
        cosine.to(device) if case.rotary_dim else None,
        sine.to(device) if case.rotary_dim else None,
        int32(case.lengths, device),
        int32(case.batch_idx, device),
        int32(case.leftpads, device),
        table,
        None if case.slopes is None else case.slopes.to(device),
        softmax_scale=SCALE,
        window_left=window[0],
        window_right=right,
        softcap=case.features.softcap,
        rotary_interleaved=case.interleaved,
        num_splits=case.num_splits,
    )
    assert out.shape == q.shape
    assert lse.shape == (case.batch, case.heads[0], case.seqlen_q)
    k_after, v_after = read_back(case, k_store, table), read_back(case, v_store, table)
    for b, length in enumerate(lengths):
        entry = b if case.batch_idx is None else case.batch_idx[b]
        first = 0 if case.leftpads is None else case.leftpads[b]
        rows, keys, values = q[b], k_cache[entry, first:length], v_cache[entry, first:length]
        new_keys = k_new[b]
        if case.rotary_dim:
            at = torch.arange(case.new) + length
            new_keys = rotate(new_keys, cosine[at], sine[at], case.interleaved)
            moving = window[0] >= 0 or right >= 0
            at = torch.arange(case.seqlen_q) * moving + length
            rows = rotate(rows, cosine[at], sine[at], case.interleaved)
        slots = slice(length, length + case.new)
        torch.testing.assert_close(k_after[entry, slots], new_keys, atol=1e-2, rtol=1e-2)
        if not case.rotary_dim:
            assert torch.equal(k_after[entry, slots], new_keys)
        assert torch.equal(v_after[entry, slots], v_new[b])
        # Nothing else of the cache has changed: what was NaN still is.
        before = torch.full_like(k_cache[entry], NAN)
        before[first:length] = keys
        before[slots] = k_after[entry, slots]
        assert torch.equal(before.view(torch.int16), k_after[entry].view(torch.int16))
        keys, values = torch.cat([keys, k_after[entry, slots]]), torch.cat([values, v_new[b]])
        slopes = case.slopes if case.slopes is None or case.slopes.dim() == 1 else case.slopes[b]
        features = replace(case.features, slopes=slopes, scale=SCALE)
        check_result(out[b], lse[b], rows, keys, values, features, f"batch entry {b}")


@pytest.mark.parametrize("features", [FULL, CAUSAL, WINDOW], ids=["full", "causal", "window"])
@pytest.mark.parametrize("seqlen_q", [1, 3, 70])
@pytest.mark.parametrize("page", [0, 16, 32, 64, 96, 192])
def test_lengths_and_pages(kernel_device: str, page: int, seqlen_q: int, features: Features) -> None:
    """Every page size that vLLM uses; slots without keys hold NaN (flash-attention 1579, 2374)."""
    run(kernel_device, Case(page=page, seqlen_q=seqlen_q, features=features))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
@pytest.mark.parametrize("hdim", [64, 128, 40, 111])
@pytest.mark.parametrize("page", [0, 16])
def test_head_dims(kernel_device: str, hdim: int, dtype: torch.dtype, page: int) -> None:
    run(kernel_device, Case(hdim=hdim, dtype=dtype, page=page, features=CAUSAL, seqlen_q=2))


@pytest.mark.parametrize("heads", [(4, 4), (6, 2), (8, 1)])
def test_one_query_reads_the_keys_of_a_group_once(kernel_device: str, heads: tuple[int, int]) -> None:
    run(kernel_device, Case(heads=heads))
    run(kernel_device, Case(heads=heads, features=CAUSAL))
    run(kernel_device, Case(heads=heads, features=Features(window=(9, 0))))


@pytest.mark.parametrize("num_splits", [1, 2, 3, 7, 128])
@pytest.mark.parametrize("page", [0, 64])
def test_parts_give_the_whole(kernel_device: str, num_splits: int, page: int) -> None:
    """Parts without keys, and more parts than keys, among them."""
    run(kernel_device, Case(num_splits=num_splits, page=page, features=CAUSAL, seqlen_q=5))


def test_many_keys_are_split_by_themselves(kernel_device: str) -> None:
    """One query of one head on 2,048 keys leaves the GPU empty unless the keys are cut."""
    from tests.kernels.test_coverage import launch_counts

    run(kernel_device, Case(lengths=(2000,), capacity=2048, heads=(2, 2)))
    assert any(name.startswith("split_combine") for name in launch_counts())


def test_without_lengths_the_whole_cache_counts(kernel_device: str) -> None:
    run(kernel_device, Case(lengths=None))
    run(kernel_device, Case(lengths=None, page=64))


def test_cache_batch_idx(kernel_device: str) -> None:
    run(kernel_device, Case(lengths=(50, 3, 100), batch_idx=(4, 0, 2)))
    run(kernel_device, Case(lengths=(50, 3, 100), batch_idx=(4, 0, 2), new=2, seqlen_q=2, features=CAUSAL))


@pytest.mark.parametrize("features", [FULL, CAUSAL, WINDOW], ids=["full", "causal", "window"])
def test_left_padding(kernel_device: str, features: Features) -> None:
    run(kernel_device, Case(lengths=(70, 9, 129), leftpads=(3, 9, 64), features=features, seqlen_q=2))
    run(kernel_device, Case(lengths=(70, 9, 129), leftpads=(3, 9, 64), features=features, new=3, batch_idx=(1, 2, 0)))


@pytest.mark.parametrize("page", [0, 16, 64, 96])
@pytest.mark.parametrize("new", [1, 5, 40])
def test_append(kernel_device: str, page: int, new: int) -> None:
    run(kernel_device, Case(page=page, new=new, seqlen_q=new, features=CAUSAL))


@pytest.mark.parametrize("interleaved", [True, False], ids=["interleaved", "halves"])
@pytest.mark.parametrize("rotary_dim", [16, 32, 64])
@pytest.mark.parametrize("features", [FULL, CAUSAL], ids=["full", "causal"])
@pytest.mark.parametrize("page", [0, 16])
def test_rotary(kernel_device: str, page: int, features: Features, rotary_dim: int, interleaved: bool) -> None:
    """With a mask query i is at position length + i, without one all are at length."""
    case = Case(page=page, new=4, seqlen_q=4, features=features, rotary_dim=rotary_dim, interleaved=interleaved)
    run(kernel_device, case)
    run(kernel_device, replace(case, new=1, seqlen_q=1, dtype=torch.float16))


def test_alibi(kernel_device: str) -> None:
    for slopes in (torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.rand(3, 4, generator=torch.Generator().manual_seed(1))):
        for features in (FULL, CAUSAL, WINDOW):
            run(kernel_device, Case(features=features, slopes=slopes, seqlen_q=3))


def test_softcap(kernel_device: str) -> None:
    for features in (Features(softcap=0.5), Features(softcap=5.0, causal=True)):
        run(kernel_device, Case(features=features, seqlen_q=3))


def test_a_cache_of_unaligned_rows_is_not_copied(kernel_device: str) -> None:
    run(kernel_device, Case(odd_rows=True, features=CAUSAL, seqlen_q=2, new=2))


def test_queries_in_any_layout(kernel_device: str) -> None:
    """Batch entries that are not one after the other, heads before rows, rows that are not aligned."""
    q = normal(2, 3, 4, 64)
    k, v = normal(2, 100, 2, 64, seed=1), normal(2, 100, 2, 64, seed=2)
    wide = torch.zeros(2, 5, 4, 65, dtype=q.dtype)
    wide[:, :3, :, 1:] = q
    expected, _ = load_ops().kvcache_fwd(*(t.to(kernel_device) for t in (q, k, v)), softmax_scale=SCALE)
    for other in (wide[:, :3, :, 1:], q.transpose(1, 2).contiguous().transpose(1, 2)):
        strided = other.to(kernel_device)
        assert strided.stride() == other.stride()
        out, _ = load_ops().kvcache_fwd(strided, k.to(kernel_device), v.to(kernel_device), softmax_scale=SCALE)
        assert torch.equal(out, expected)


def test_nothing_to_do(kernel_device: str) -> None:
    """No batch, no queries, an empty cache."""
    kv = normal(2, 64, 2, 64).to(kernel_device)
    for q, cache in ((kv[:0], kv[:0]), (kv[:, :0], kv), (kv, kv[:, :0])):
        out, lse = load_ops().kvcache_fwd(q, cache, cache, softmax_scale=SCALE)
        assert out.shape == q.shape
        assert (out == 0).all()
        assert torch.isneginf(lse).all()


def bad(**changes: Any) -> dict[str, Any]:
    return changes


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (bad(cache_seqlens=[65, 1]), "cache_seqlens has 65 at 0; .* room for 64 allowed: 0 to 64"),
        (bad(cache_seqlens=[-1, 1]), "cache_seqlens has -1 at 0"),
        (bad(cache_seqlens=[63, 1], new=2), "cache_seqlens has 63 at 0; with 2 new rows and room for 64"),
        (bad(new=2), "cache_seqlens must say where they go"),
        (bad(cache_seqlens=[1], new=0), r"cache_seqlens has shape \(1\); expected \(2\)"),
        (bad(cache_batch_idx=[0, 2]), "cache_batch_idx has 2 at 1; allowed: 0 to 1"),
        (bad(cache_leftpad=[3, 0], cache_seqlens=[2, 2]), "cache_leftpad has 3 at 0; allowed: 0 to cache_seqlens, 2"),
        (bad(block_table=[[0], [2]]), r"block_table has page 2 at \(1, 0\); the cache has pages 0 to 1"),
        (bad(block_table=[[0], [-1]]), r"block_table has page -1 at \(1, 0\)"),
        (
            bad(block_table=[[0], [1]], cache_batch_idx=[0, 1]),
            "block_table and cache_batch_idx cannot be given together",
        ),
        (bad(block_table=[[0], [1]], cache_leftpad=[0, 1]), "block_table and cache_leftpad cannot be given together"),
        (bad(block_table=[[0], [1]], page=60), "pages have 60 rows; allowed: multiples of 16"),
        (bad(num_splits=129), "num_splits is 129; allowed: 0 .* to 128"),
    ],
)
def test_bad_arguments(kernel_device: str, change: dict[str, Any], message: str) -> None:
    if kernel_device != "cpu":
        pytest.skip("tables in GPU memory are clamped, not read by the host")
    q = normal(2, 1, 2, 64)
    cache = normal(2, change.pop("page", 64), 2, 64)
    new = normal(2, change.pop("new", 0), 2, 64)
    splits = change.pop("num_splits", 0)
    tables = {name: torch.tensor(value, dtype=torch.int32) for name, value in change.items()}
    with pytest.raises(RuntimeError, match=message):
        load_ops().kvcache_fwd(
            q, cache, cache.clone(), *((new, new) if new.shape[1] else (None, None)), **tables,
            softmax_scale=SCALE, num_splits=splits,
        )  # fmt: skip


VARLEN = [(5, 40), (0, 7), (64, 130), (3, 0), (1, 190)]


@pytest.mark.parametrize("features", [FULL, CAUSAL, WINDOW, Features(softcap=4.0)])
@pytest.mark.parametrize("page", [0, 16, 64])
@pytest.mark.parametrize("num_splits", [0, 3])
def test_varlen_in_pages_and_in_parts(kernel_device: str, features: Features, page: int, num_splits: int) -> None:
    lengths_q, lengths_k = [q for q, _ in VARLEN], [k for _, k in VARLEN]
    starts_q, starts_k = (
        torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32)
        for lengths in (lengths_q, lengths_k)
    )
    q = normal(sum(lengths_q), 4, 64)
    case = Case(lengths=tuple(lengths_k), page=page)
    k_cache, v_cache = make_cache(case, 1), make_cache(case, 2)
    if page:
        (k, table), (v, _) = (lay_out(case, cache, lengths_k, kernel_device) for cache in (k_cache, v_cache))
    else:
        k, v = (
            torch.cat([cache[b, :n] for b, n in enumerate(lengths_k)]).to(kernel_device) for cache in (k_cache, v_cache)
        )
        table = None
    out, lse, _ = load_ops().varlen_fwd(
        q.to(kernel_device),
        k,
        v,
        starts_q.to(kernel_device),
        starts_k.to(kernel_device),
        None,
        table,
        max_seqlen_q=max(lengths_q),
        max_seqlen_k=max(lengths_k),
        softmax_scale=SCALE,
        window_left=features.window[0],
        window_right=0 if features.causal else features.window[1],
        softcap=features.softcap,
        num_splits=num_splits,
    )
    for b, (length_q, length_k) in enumerate(VARLEN):
        rows = slice(int(starts_q[b]), int(starts_q[b]) + length_q)
        this = replace(features, scale=SCALE)
        check_result(
            out[rows], lse[:, rows], q[rows], k_cache[b, :length_k], v_cache[b, :length_k], this, f"sequence {b}"
        )


def test_varlen_in_pages_goes_without_dropout(kernel_device: str) -> None:
    q, k = normal(4, 2, 64).to(kernel_device), normal(2, 64, 2, 64).to(kernel_device)
    starts = torch.tensor([0, 4], dtype=torch.int32, device=kernel_device)
    table, state = torch.zeros(1, 1, dtype=torch.int32, device=kernel_device), torch.zeros(2, dtype=torch.int64)
    with pytest.raises(RuntimeError, match=r"dropout_p is 0\.5: block_table and num_splits above 1 go without dropout"):
        load_ops().varlen_fwd(
            q, k, k, starts, starts, None, table, None, state.to(kernel_device),
            max_seqlen_q=4, max_seqlen_k=4, softmax_scale=SCALE, dropout_p=0.5,
        )  # fmt: skip


def test_alibi_of_long_sequences_is_right(kernel_device: str) -> None:
    """CK's forward kernels compute distances modulo 2^16; such calls go to kernels that do not."""
    q, k, v = normal(1, 1, 64), normal(66000, 1, 64, seed=1), normal(66000, 1, 64, seed=2)
    slopes = torch.tensor([0.0001])
    out, lse, _ = load_ops().varlen_fwd(
        *(t.to(kernel_device) for t in (q, k, v)),
        torch.tensor([0, 1], dtype=torch.int32, device=kernel_device),
        torch.tensor([0, 66000], dtype=torch.int32, device=kernel_device),
        None,
        None,
        slopes.to(kernel_device),
        max_seqlen_q=1,
        max_seqlen_k=66000,
        softmax_scale=SCALE,
    )
    scores = (k[:, 0].double() @ q[0, 0].double()) * SCALE - 0.0001 * (65999 - torch.arange(66000)).double()
    expected = torch.softmax(scores, 0) @ v[:, 0].double()
    assert abs(lse.item() - torch.logsumexp(scores, 0).item()) < 1e-4
    assert (out[0, 0].cpu().double() - expected).abs().max() < 2 * 2**-9 * expected.abs().max() + 1e-5
    assert math.isfinite(lse.item())


def test_autograd_refuses_gradients_that_need_what_was_in_the_cache(kernel_device: str) -> None:
    cache = torch.randn(2, 20, 2, 64, device=kernel_device, requires_grad=True)
    k_cache, v_cache = (cache * 1).half(), (cache * 2).half()
    losses = [(tensor * tensor).sum() for tensor in (k_cache, v_cache)]
    new = torch.zeros(2, 1, 2, 64, dtype=torch.float16, device=kernel_device)
    flash_attn_with_kvcache(new, k_cache, v_cache, cache_seqlens=5)
    losses[0].backward(retain_graph=True)  # reading the cache does not matter
    flash_attn_with_kvcache(new, k_cache, v_cache, new, new, cache_seqlens=5)
    for loss in losses:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_caches_of_inference_mode_are_written(kernel_device: str) -> None:
    with torch.inference_mode():
        k_cache, v_cache = (torch.zeros(2, 20, 2, 64, dtype=torch.float16, device=kernel_device) for _ in range(2))
        new = torch.ones(2, 1, 2, 64, dtype=torch.float16, device=kernel_device)
        flash_attn_with_kvcache(new, k_cache, v_cache, new, new, cache_seqlens=5)
    for cache in (k_cache, v_cache):
        assert cache[:, 5].eq(1).all()
        assert cache.sum() == 2 * 2 * 64


def test_dropout_ignores_parts_and_maxima_beyond_all_sequences(kernel_device: str) -> None:
    q, k = normal(9, 4, 64, dtype=torch.float16, seed=1), normal(12, 2, 64, dtype=torch.float16, seed=2)
    starts = [int32(values, kernel_device) for values in ((0, 4, 9), (0, 5, 12))]
    tensors = (*(tensor.to(kernel_device) for tensor in (q, k, k)), *starts)
    for dropout in (0.0, 0.3):
        outs = []
        for longest, num_splits in (((5, 7), 0), ((2**31 - 1, 2**31 - 1), 0), ((5, 7), 3)):
            torch.manual_seed(0)
            outs.append(_flash_attn_varlen_forward(*tensors, *longest, dropout, 0.1, False, num_splits=num_splits)[0])
        assert torch.equal(outs[1], outs[0])
        torch.testing.assert_close(outs[2], outs[0], rtol=0, atol=2e-3)  # parts are added up in another order


def test_slots_that_are_all_one_are_refused_without_a_crash(kernel_device: str) -> None:
    own, slot = (torch.zeros(2, rows, 2, 64, dtype=torch.float16, device=kernel_device) for rows in (20, 1))
    for caches in ((slot.expand_as(own), own), (own, slot.expand_as(own)), (slot.expand_as(own),) * 2):
        with pytest.raises(KernelUnavailableError, match="is expanded along its slots"):
            flash_attn_with_kvcache(own[:, :1], *caches, cache_seqlens=5)


def test_new_rows_may_be_rows_of_the_cache(kernel_device: str) -> None:
    """Rows 0 to 9 again as rows 5 to 14: some are read after others were written over them, unless they are copied."""
    cache = normal(1, 20, 1, 64).to(kernel_device)
    rows = cache[:, :10].clone()
    q = normal(1, 1, 1, 64, seed=1).to(kernel_device)
    load_ops().kvcache_fwd(
        q, cache, cache, cache[:, :10], cache[:, :10], cache_seqlens=int32((5,), kernel_device), softmax_scale=SCALE
    )
    assert torch.equal(cache[:, 5:15], rows)


def test_a_cache_of_one_batch_may_be_a_slice_of_a_packed_one(kernel_device: str) -> None:
    """The stride of a batch that is alone says nothing about its rows."""
    packed = normal(1, 15, 2, 2, 64).to(kernel_device)
    q = normal(1, 1, 2, 64).to(kernel_device)
    k, v = packed[:, :, 0], packed[:, :, 1]
    lengths = int32((7,), kernel_device)
    out = flash_attn_with_kvcache(q, k, v, cache_seqlens=lengths)
    torch.testing.assert_close(
        out, flash_attn_with_kvcache(q, k.contiguous(), v.contiguous(), cache_seqlens=lengths), rtol=0, atol=0
    )


def test_the_op_itself_refuses_rows_without_memory(kernel_device: str) -> None:
    """Callers of the op have no Python checks before it; a division by the stride ended the process."""
    ops = load_ops()
    q = normal(2, 1, 2, 64).to(kernel_device)
    rows = normal(2, 1, 2, 64, seed=1).to(kernel_device).expand(2, 15, 2, 64)
    lengths = int32((7, 7), kernel_device)
    with pytest.raises(RuntimeError, match="row strides 0 and 0"):
        ops.kvcache_fwd(q, rows, rows, cache_seqlens=lengths, softmax_scale=SCALE)
