"""Drawn calls of every attention function, and their comparison with the plain float64 references.

Used on the SDPA backend (tests/api) and through the kernels (tests/kernels): a call that the installed kernels do not
cover must say so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from hypothesis import strategies as st

from flash_attn_rocm import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache
from flash_attn_rocm.flash_attn_interface import _flash_attn_varlen_forward
from flash_attn_rocm.reference import Comparison, Dropped, Mask, Scoring, attention_in, compare_results
from flash_attn_rocm.reference_sequences import Cache, Rotary, append_to, kvcache_in, rotated_queries, varlen_in


@dataclass(frozen=True)
class Options:
    """What all functions have in common."""

    dtype: torch.dtype = torch.float16
    headdim: int = 64
    heads: int = 2
    heads_k: int = 2
    causal: bool = False
    window: tuple[int, int] = (-1, -1)
    scale: float | None = None
    softcap: float = 0.0
    alibi: str = "none"  # or "heads", "batch"
    dropout_p: float = 0.0
    layout: str = "contiguous"
    seed: int = 0

    def generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed)

    def slopes(self, batch: int) -> torch.Tensor | None:
        if self.alibi == "none":
            return None
        shape = (self.heads,) if self.alibi == "heads" else (batch, self.heads)
        return torch.rand(shape, generator=torch.Generator().manual_seed(self.seed + 1)) * 0.3

    def scoring(self, batch: int) -> Scoring:
        scale = self.headdim**-0.5 if self.scale is None else self.scale
        mask = Mask(self.window[0], 0 if self.causal else self.window[1])
        return Scoring(scale, mask, self.softcap, self.slopes(batch))

    def arguments(self, batch: int, device: str) -> dict[str, Any]:
        slopes = self.slopes(batch)
        return {
            "causal": self.causal,
            "window_size": self.window,
            "softmax_scale": self.scale,
            "softcap": self.softcap,
            "alibi_slopes": None if slopes is None else slopes.to(device),
        }

    def normal(self, generator: torch.Generator, *shape: int) -> torch.Tensor:
        """Random (..., nheads, headdim), lying in memory as the layout says."""
        *outer, heads, headdim = shape
        if self.layout == "heads first":
            return torch.randn(heads, *outer, headdim, generator=generator).to(self.dtype).movedim(0, -2)
        if self.layout == "odd rows":
            return torch.randn(*outer, heads, headdim + 1, generator=generator).to(self.dtype)[..., 1:]
        if self.layout == "last dim strided":
            return torch.randn(*outer, heads, 2 * headdim, generator=generator).to(self.dtype)[..., ::2]
        return torch.randn(*shape, generator=generator).to(self.dtype)


LAYOUTS = ("contiguous", "heads first", "odd rows", "last dim strided")


FEW = 32  # numbers of a result whose largest error says little about what the dtype explains


def require(
    comparison: Comparison, exact: torch.Tensor, dtype: torch.dtype, case: object, terms: Callable[[], torch.Tensor]
) -> None:
    """Fail where a result is worse than the same dtype explains.

    Of few numbers the same-dtype computation may happen to round none, so what rounding the probabilities and the
    output may change is allowed: half an epsilon each of the sum of |probability * value|, which `terms` computes, and
    which may be much larger than the result.
    """
    few = 0 < exact.numel() <= FEW
    size = float((terms() if few else exact).abs().max()) if exact.numel() else 0.0
    rounding = torch.finfo(dtype).eps * size
    allowed = replace(comparison, allowed=max(comparison.allowed, rounding))
    assert allowed.passed, f"{case}: {allowed}"


@dataclass(frozen=True)
class Fixed:
    """One call of flash_attn_func."""

    options: Options
    batch: int
    seqlen_q: int
    seqlen_k: int

    def check(self, device: str) -> None:
        o, generator = self.options, self.options.generator()
        q = o.normal(generator, self.batch, self.seqlen_q, o.heads, o.headdim)
        k, v = (o.normal(generator, self.batch, self.seqlen_k, o.heads_k, o.headdim) for _ in range(2))
        torch.manual_seed(o.seed)
        out, lse, random_map = flash_attn_func(
            *(tensor.to(device) for tensor in (q, k, v)),
            dropout_p=o.dropout_p,
            return_attn_probs=True,
            **o.arguments(self.batch, device),
        )
        assert out.dtype == o.dtype
        assert out.shape == q.shape
        assert out.is_contiguous()
        assert lse.dtype == torch.float32
        dropped = None
        if o.dropout_p:
            assert random_map.dtype == torch.uint8
            assert random_map.shape == (self.batch, o.heads, self.seqlen_q, self.seqlen_k)
            dropped = Dropped(o.dropout_p, random_map)
        exact = attention_in(torch.float64, q, k, v, o.scoring(self.batch), dropped)
        same_dtype, _ = attention_in(o.dtype, q, k, v, o.scoring(self.batch), dropped)
        comparison = compare_results(out, lse, exact, same_dtype)

        def terms() -> torch.Tensor:
            return attention_in(torch.float64, q, k, v.abs(), o.scoring(self.batch), dropped)[0]

        require(comparison, exact[0], o.dtype, self, terms)


def cumulative(lengths: list[int]) -> torch.Tensor:
    return torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)


def shuffled_pages(
    generator: torch.Generator, tensors: list[torch.Tensor], page_size: int, spare: int = 2
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Tensors (B, S, ...) cut into pages that lie in a random order, all slots that hold nothing NaN; and the table."""
    batch, seqlen = tensors[0].shape[:2]
    blocks = max(1, -(-seqlen // page_size))
    order = torch.randperm(batch * blocks + spare, generator=generator)
    table = order[: batch * blocks].reshape(batch, blocks).to(torch.int32)
    paged = []
    for tensor in tensors:
        pages = torch.full((batch * blocks + spare, page_size, *tensor.shape[2:]), float("nan")).to(tensor.dtype)
        for b in range(batch):
            for j in range(seqlen):
                pages[table[b, j // page_size], j % page_size] = tensor[b, j]
        paged.append(pages)
    return paged, table


@dataclass(frozen=True)
class Varlen:
    """One call of flash_attn_varlen_func, or with seqused_k or leftpad_k of _flash_attn_varlen_forward."""

    options: Options
    lengths_q: list[int]
    lengths_k: list[int]
    tail: int = 0  # rows after the last sequence, which hold NaN
    page_size: int = 0  # 0: not paged
    seqused_k: list[int] | None = None
    leftpad_k: list[int] | None = None
    num_splits: int = 0
    max_extra: int = 0  # how much max_seqlen exceeds the longest sequence

    def tensors(self) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
        o, generator = self.options, self.options.generator()
        q = o.normal(generator, sum(self.lengths_q) + self.tail, o.heads, o.headdim)
        k, v = (o.normal(generator, sum(self.lengths_k) + self.tail, o.heads_k, o.headdim) for _ in range(2))
        for tensor, used in ((q, sum(self.lengths_q)), (k, sum(self.lengths_k)), (v, sum(self.lengths_k))):
            tensor[used:] = float("nan")
        more = {}
        if self.page_size:
            longest = max(self.lengths_k, default=0)
            padded = [o.normal(generator, len(self.lengths_k), longest, o.heads_k, o.headdim) for _ in range(2)]
            for tensor in padded:
                for b, length in enumerate(self.lengths_k):
                    tensor[b, length:] = float("nan")
            (k, v), more["block_table"] = shuffled_pages(generator, padded, self.page_size)
        for name in ("seqused_k", "leftpad_k"):
            if getattr(self, name) is not None:
                more[name] = torch.tensor(getattr(self, name), dtype=torch.int32)
        return [q, k, v, cumulative(self.lengths_q), cumulative(self.lengths_k)], more

    def check(self, device: str) -> None:
        o = self.options
        tensors, more = self.tensors()
        q = tensors[0]
        batch, total = len(self.lengths_q), sum(self.lengths_q)
        longest = [max(lengths, default=0) + self.max_extra for lengths in (self.lengths_q, self.lengths_k)]
        moved = {name: tensor.to(device) for name, tensor in more.items()}
        arguments = o.arguments(batch, device)
        torch.manual_seed(o.seed)
        if self.seqused_k is None and self.leftpad_k is None and not self.num_splits:
            arguments |= {"dropout_p": o.dropout_p, "return_attn_probs": True}
            function: Any = flash_attn_varlen_func
        else:
            left, right = arguments.pop("window_size")
            scale = arguments.pop("softmax_scale")
            arguments |= {
                "dropout_p": o.dropout_p,
                "softmax_scale": o.headdim**-0.5 if scale is None else scale,
                "window_size_left": left,
                "window_size_right": right,
                "return_softmax": True,
                "num_splits": self.num_splits,
            }
            function = _flash_attn_varlen_forward
        out, lse, random_map, *_ = function(*(tensor.to(device) for tensor in tensors), *longest, **arguments, **moved)
        assert out.shape == q.shape
        assert out.dtype == o.dtype
        assert lse.shape == (o.heads, q.shape[0])
        assert lse.dtype == torch.float32
        dropped = None
        if o.dropout_p:
            assert random_map.dtype == torch.uint8
            assert random_map.shape == (o.heads, q.shape[0], longest[1])
            dropped = Dropped(o.dropout_p, random_map)
        references = [
            varlen_in(dtype, *tensors, o.scoring(batch), dropped=dropped, **more) for dtype in (torch.float64, o.dtype)
        ]
        exact, same_dtype = [(x[:total], y[:, :total]) for x, y in references]
        comparison = compare_results(out[:total], lse[:, :total], exact, same_dtype[0])

        def terms() -> torch.Tensor:
            q, k, v, *starts = tensors
            out, _ = varlen_in(torch.float64, q, k, v.abs(), *starts, o.scoring(batch), dropped=dropped, **more)
            return out[:total]

        require(comparison, exact[0], o.dtype, self, terms)


@dataclass(frozen=True)
class KvCache:
    """One call of flash_attn_with_kvcache."""

    options: Options
    seqlen_q: int
    capacity: int
    lengths: list[int] | None  # None: the whole cache
    appended: int = 0
    rotary_dim: int = 0
    interleaved: bool = True
    page_size: int = 0
    batch_idx: bool = False
    leftpad: list[int] | None = None
    num_splits: int = 0
    batch: int = field(default=2)

    def cache(self, generator: torch.Generator) -> Cache:
        """The cache, with NaN in every slot that no length reaches."""
        o = self.options
        rows = self.batch + (2 if self.batch_idx else 0)
        lengths = [self.capacity] * self.batch if self.lengths is None else self.lengths
        tensors = [o.normal(generator, rows, self.capacity, o.heads_k, o.headdim) for _ in range(2)]
        index = torch.randperm(rows, generator=generator)[: self.batch].to(torch.int32) if self.batch_idx else None
        leftpad = None if self.leftpad is None else torch.tensor(self.leftpad, dtype=torch.int32)
        used = {int(index[b]) if index is not None else b: b for b in range(self.batch)}
        for tensor in tensors:
            for row in range(rows):
                if row not in used:
                    tensor[row] = float("nan")
                    continue
                tensor[row, lengths[used[row]] :] = float("nan")
                if self.leftpad is not None:
                    tensor[row, : self.leftpad[used[row]]] = float("nan")
        table = None
        if self.page_size:
            tensors, table = shuffled_pages(generator, tensors, self.page_size)
        return Cache(tensors[0], tensors[1], lengths, index, leftpad, table)

    def check(self, device: str) -> None:
        o, generator = self.options, self.options.generator()
        cache = self.cache(generator)
        q = o.normal(generator, self.batch, self.seqlen_q, o.heads, o.headdim)
        new: list[torch.Tensor] = []
        rotary = None
        if self.appended:
            new = [o.normal(generator, self.batch, self.appended, o.heads_k, o.headdim) for _ in range(2)]
        if self.rotary_dim:
            rows = self.capacity + max(0, self.seqlen_q - self.appended)
            angles = torch.rand(rows, self.rotary_dim // 2, generator=generator) * 6.3
            rotary = Rotary(angles.cos().to(o.dtype), angles.sin().to(o.dtype), self.interleaved)
        k_cache, v_cache = (self.placed(tensor, device) for tensor in (cache.k, cache.v))
        arguments: dict[str, Any] = o.arguments(self.batch, device) | {"num_splits": self.num_splits}
        if self.lengths is not None:
            arguments["cache_seqlens"] = torch.tensor(self.lengths, dtype=torch.int32)
        arguments |= {
            "cache_batch_idx": cache.batch_idx,
            "cache_leftpad": cache.leftpad,
            "block_table": cache.block_table,
            "rotary_cos": rotary and rotary.cos,
            "rotary_sin": rotary and rotary.sin,
            "rotary_interleaved": self.interleaved,
        }
        moved = {
            key: value.to(device) if isinstance(value, torch.Tensor) else value for key, value in arguments.items()
        }
        out, lse = flash_attn_with_kvcache(
            q.to(device), k_cache, v_cache, *(tensor.to(device) for tensor in new), return_softmax_lse=True, **moved
        )
        assert out.shape == q.shape
        assert out.dtype == o.dtype
        assert lse.shape == (self.batch, o.heads, self.seqlen_q)
        advancing = o.causal or max(o.window) >= 0
        q = rotated_queries(q, cache.lengths, rotary, advancing) if rotary else q
        after = append_to(cache, *new, rotary) if new else cache
        # Rotation is exact to one rounding of the largest feature; everything else in the cache is untouched.
        torch.testing.assert_close(
            k_cache.cpu(), after.k, atol=2.0**-9 if rotary else 0.0, rtol=2.0**-7, equal_nan=True
        )
        assert torch.equal(torch.nan_to_num(v_cache.cpu()), torch.nan_to_num(after.v))
        scoring = o.scoring(self.batch)
        exact = kvcache_in(torch.float64, q, after, scoring)
        same_dtype, _ = kvcache_in(o.dtype, q, after, scoring)
        comparison = compare_results(out, lse, exact, same_dtype)
        if rotary:  # q and k are rounded once more than in the same-dtype computation, which shares the rounded ones
            rounding = 2.0**-11 if o.dtype is torch.float16 else 2.0**-8
            assert comparison.error <= comparison.allowed + 8 * rounding, f"{self}: {comparison}"
            assert comparison.lse_error <= 16 * rounding, f"{self}: {comparison}"
        else:

            def terms() -> torch.Tensor:
                return kvcache_in(torch.float64, q, replace(after, v=after.v.abs()), scoring)[0]

            require(comparison, exact[0], o.dtype, self, terms)

    def placed(self, tensor: torch.Tensor, device: str) -> torch.Tensor:
        """A copy that lies in memory as the layout says."""
        if self.options.layout == "heads first":
            return tensor.transpose(1, 2).contiguous().transpose(1, 2).to(device)
        return tensor.clone().to(device)


HEAD_DIMS = st.one_of(st.sampled_from([32, 64, 128]), st.integers(1, 128))
BOUNDS = st.one_of(st.just(-1), st.integers(0, 60))


@st.composite
def options(draw: st.DrawFn, *, head_dims: st.SearchStrategy[int] = HEAD_DIMS, dropout: bool = True) -> Options:
    heads_k = draw(st.integers(1, 2))
    return Options(
        dtype=draw(st.sampled_from([torch.float16, torch.bfloat16])),
        headdim=draw(head_dims),
        heads=heads_k * draw(st.sampled_from([1, 2, 3, 4])),
        heads_k=heads_k,
        causal=draw(st.booleans()),
        window=draw(st.one_of(st.just((-1, -1)), st.tuples(BOUNDS, BOUNDS))),
        scale=draw(st.sampled_from([None, 0.3])),
        softcap=draw(st.sampled_from([0.0, 0.0, 3.0, 30.0])),
        alibi=draw(st.sampled_from(["none", "none", "heads", "batch"])),
        dropout_p=draw(st.sampled_from([0.0, 0.0, 0.17, 0.5])) if dropout else 0.0,
        layout=draw(st.sampled_from(LAYOUTS)),
        seed=draw(st.integers(0, 2**16)),
    )


LENGTHS = st.one_of(st.integers(0, 4), st.integers(5, 140), st.sampled_from([63, 64, 65, 128]))


@st.composite
def fixed_calls(draw: st.DrawFn) -> Fixed:
    return Fixed(draw(options()), draw(st.integers(1, 2)), draw(LENGTHS), draw(LENGTHS))


@st.composite
def varlen_calls(draw: st.DrawFn, *, paged: bool = True) -> Varlen:
    batch = draw(st.integers(1, 4))
    lengths_k = draw(st.lists(LENGTHS, min_size=batch, max_size=batch))
    page_size = draw(st.sampled_from([0, 0, 16, 64, 128, 7])) if paged else 0
    used = [draw(st.integers(0, length)) for length in lengths_k] if draw(st.integers(0, 3)) == 0 else None
    return Varlen(
        draw(options(dropout=page_size == 0)),
        draw(st.lists(LENGTHS, min_size=batch, max_size=batch)),
        lengths_k,
        tail=draw(st.sampled_from([0, 0, 9])),
        page_size=page_size,
        seqused_k=used,
        max_extra=draw(st.sampled_from([0, 0, 11])),
    )


@st.composite
def kvcache_calls(draw: st.DrawFn) -> KvCache:
    batch = draw(st.integers(1, 3))
    page_size = draw(st.sampled_from([0, 0, 16, 32, 64, 128, 7]))
    capacity = draw(st.integers(1, 200))
    appended = draw(st.sampled_from([0, 0, 1, 3, 20]))
    capacity = max(capacity, appended)
    if page_size:  # without lengths, all slots of all pages are used
        capacity = -(-capacity // page_size) * page_size
    lengths = None
    if appended or draw(st.booleans()):
        lengths = [draw(st.integers(0, capacity - appended)) for _ in range(batch)]
    chosen = draw(options(dropout=False))
    largest = chosen.headdim // 16 * 16
    leftpad = None
    if lengths is not None and not page_size and draw(st.integers(0, 3)) == 0:
        leftpad = [draw(st.integers(0, length)) for length in lengths]
    return KvCache(
        chosen,
        draw(st.sampled_from([1, 1, 2, 5, 70])),
        capacity,
        lengths,
        appended=appended,
        rotary_dim=draw(st.sampled_from([0, 16, largest])) if appended and largest else 0,
        interleaved=draw(st.booleans()),
        page_size=page_size,
        batch_idx=not page_size and draw(st.booleans()),
        leftpad=leftpad,
        num_splits=draw(st.sampled_from([0, 0, 1, 3])),
        batch=batch,
    )
