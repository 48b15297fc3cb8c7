"""The grid of `flash-attn-rocm verify`: attention calls that together execute every installed kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

# Without installed kernels (torch's attention is checked instead).
_DEFAULT_HEAD_DIMS = (64, 128)
_DEFAULT_DTYPES = ("fp16", "bf16")
_DEFAULT_TILE = 64
# Smaller than an installed head dim, so that kernels with padded head dims run; one of them odd.
_PADDED_HEAD_DIMS = (24, 40, 72, 111, 160, 200)


@dataclass(frozen=True)
class Case:
    """One attention call; layout says how q, k and v lie in memory."""

    dtype: str
    head_dim: int
    seqlen_q: int
    seqlen_k: int
    batch: int = 1
    heads: int = 2
    heads_k: int = 2
    causal: bool = False
    window: tuple[int, int] = (-1, -1)
    layout: str = "contiguous"
    mode: str = "batch"  # "batch"; "group": sequences of different lengths; "cache": a KV cache, appended to
    alibi: bool = False
    softcap: float = 0.0
    dropout_p: float = 0.0
    page: int = 0  # rows of a page of the cache; 0: in one piece
    num_splits: int = 0
    backward: bool = False  # the gradients of the call
    deterministic: bool = False

    @property
    def plain(self) -> bool:
        """Whether flash_attn_func alone makes this call."""
        return self.mode == "batch" and not (self.alibi or self.softcap or self.dropout_p or self.backward)

    @property
    def name(self) -> str:
        """Short text that tells cases apart."""
        parts = [self.dtype, f"d{self.head_dim}", f"b{self.batch}", f"q{self.seqlen_q}", f"k{self.seqlen_k}"]
        parts.append(f"h{self.heads}" if self.heads == self.heads_k else f"h{self.heads}/{self.heads_k}")
        if self.causal:
            parts.append("causal")
        if self.window != (-1, -1):
            parts.append(f"window({self.window[0]},{self.window[1]})")
        if self.layout != "contiguous":
            parts.append(self.layout)
        words = {"group": "varlen", "cache": f"cache page {self.page}" if self.page else "cache"}
        parts += [words[self.mode]] if self.mode in words else []
        parts += ["alibi"] if self.alibi else []
        parts += [f"softcap({self.softcap:g})"] if self.softcap else []
        parts += [f"dropout({self.dropout_p:g})"] if self.dropout_p else []
        parts += ["backward"] if self.backward else []
        parts += ["deterministic"] if self.deterministic else []
        return " ".join(parts)


def _exact_cases(dtype: str, head_dim: int, tile_m: int, tile_n: int) -> Iterator[Case]:
    """Head dim equal to a kernel's: whole tiles, ragged and degenerate lengths, every mask and layout."""
    yield Case(dtype, head_dim, 2 * tile_m, 3 * tile_n, heads=4, heads_k=2)
    yield Case(dtype, head_dim, 2 * tile_m, 2 * tile_n, causal=True)
    yield Case(dtype, head_dim, 3 * tile_m, 2 * tile_n, window=(tile_n, 3))
    yield Case(dtype, head_dim, 113, 203, batch=2, heads=3, heads_k=1)
    yield Case(dtype, head_dim, 1, 77, heads=4, heads_k=1, causal=True)
    yield Case(dtype, head_dim, 200, 1)
    yield Case(dtype, head_dim, 0, 5)
    yield Case(dtype, head_dim, 5, 0)
    yield Case(dtype, head_dim, 113, 203, heads=6, heads_k=3, causal=True)
    yield Case(dtype, head_dim, 150, 70, causal=True)
    yield Case(dtype, head_dim, 100, 130, window=(33, 7))
    yield Case(dtype, head_dim, 90, 90, batch=2, causal=True, layout="packed")
    yield Case(dtype, head_dim, 70, 90, layout="transposed")
    yield Case(dtype, head_dim, 70, 90, causal=True, layout="misaligned")


def _padded_cases(dtype: str, head_dim: int) -> Iterator[Case]:
    """Head dim smaller than any kernel's."""
    yield Case(dtype, head_dim, 64, 100, heads=4, heads_k=2)
    yield Case(dtype, head_dim, 75, 130, batch=2, causal=True)


def _is_plain(kernel: Mapping[str, Any]) -> bool:
    features = kernel["bias"] != "none" or kernel["softcap"] or kernel["dropout"]
    return kernel["op"] == "fmha_fwd" and kernel["mode"] == "batch" and not features


def _feature_case(kernel: Mapping[str, Any]) -> Case:
    """A call that the rules of dispatch send to this forward or split-KV kernel."""
    split = kernel["op"] == "fmha_fwd_splitkv"
    page = {0: 0, 16: 48, 64: 128}[kernel["page"]]  # kernels for pages of 64 rows win where they fit
    # One less than the tile's head dim is more than that of the next smaller tile.
    return Case(
        kernel["dtype"],
        kernel["hdim_q"] - (kernel["padding"] == "full"),
        kernel["tile_m"] + 9,
        384 if split else 2 * kernel["tile_n"] + 9,
        heads=4,
        heads_k=2,
        causal=kernel["mask"],
        mode="cache" if split else kernel["mode"],
        alibi=kernel["bias"] == "alibi",
        softcap=4.0 if kernel["softcap"] else 0.0,
        dropout_p=0.25 if kernel["dropout"] else 0.0,
        page=page,
        num_splits=2 if split else 0,
    )


def _backward_case(kernel: Mapping[str, Any]) -> Case:
    """A call whose gradients the rules of dispatch take from this kernel; two query heads share a key head."""
    return Case(
        kernel["dtype"],
        kernel["hdim_q"] - 8 * (kernel["padding"] == "full"),  # gradients are computed in steps of 8
        2 * kernel["tile_m"] + 9,
        2 * kernel["tile_n"] + 9,
        heads=4,
        heads_k=2,
        causal=kernel["mask"],
        mode=kernel["mode"],
        alibi=kernel["bias"] == "alibi",
        dropout_p=0.25 if kernel["dropout"] else 0.0,
        backward=True,
        deterministic=kernel["deterministic"],
    )


def plan_cases(kernels: Iterable[Mapping[str, Any]]) -> list[Case]:
    """Cases for the kernels of a kernels.json; a default grid where there are none."""
    kernels = list(kernels)
    rows = [kernel for kernel in kernels if _is_plain(kernel)]
    tiles: dict[tuple[str, int], tuple[int, int]] = {}
    for row in rows:
        tile_m, tile_n = tiles.get((row["dtype"], row["hdim_q"]), (1, 1))
        tiles[row["dtype"], row["hdim_q"]] = (max(tile_m, row["tile_m"]), max(tile_n, row["tile_n"]))
    if not kernels:
        tiles = {
            (dtype, head_dim): (_DEFAULT_TILE, _DEFAULT_TILE)
            for dtype in _DEFAULT_DTYPES
            for head_dim in _DEFAULT_HEAD_DIMS
        }
    cases: list[Case] = []
    for (dtype, head_dim), (tile_m, tile_n) in sorted(tiles.items()):
        cases += _exact_cases(dtype, head_dim, tile_m, tile_n)
        smaller = max((other for kind, other in tiles if kind == dtype and other < head_dim), default=0)
        for padded in _PADDED_HEAD_DIMS:
            if smaller < padded < head_dim:
                cases += _padded_cases(dtype, padded)
    attention = ("fmha_fwd", "fmha_fwd_splitkv")
    cases += [_feature_case(row) for row in kernels if row["op"] in attention and not _is_plain(row)]
    return cases + [_backward_case(row) for row in kernels if row["op"] == "fmha_bwd"]
