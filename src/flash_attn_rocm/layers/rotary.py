"""Rotary position embeddings, with the names and arguments of flash_attn.layers.rotary, by torch operations.

From RoFormer (https://arxiv.org/abs/2104.09864), with the length scaling of xPos (https://arxiv.org/abs/2212.10554):
each pair of elements of a head is turned by position * frequency. Computed in float32 whatever the dtype.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flash_attn_rocm.errors import InputError


def rotate_half(x: Tensor, interleaved: bool = False) -> Tensor:
    """Each pair (a, b) of the last dimension as (-b, a): pairs of halves, or of neighbours if interleaved."""
    if interleaved:
        return torch.stack((-x[..., 1::2], x[..., 0::2]), dim=-1).flatten(-2)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def _turn(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """x (..., seqlen, nheads, rotary_dim) turned by the angles of cos and sin (..., seqlen, rotary_dim / 2)."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    cos, sin = cos.unsqueeze(-2).to(dtype), sin.unsqueeze(-2).to(dtype)
    pairs = x.to(dtype)
    if interleaved:
        first, second = pairs[..., 0::2], pairs[..., 1::2]
    else:
        first, second = pairs.chunk(2, dim=-1)
    turned = (first * cos - second * sin, first * sin + second * cos)
    return torch.stack(turned, dim=-1).flatten(-2) if interleaved else torch.cat(turned, dim=-1)


def _check_tables(x: Tensor, cos: Tensor, sin: Tensor, cos_dims: tuple[int, ...]) -> int:
    """The number of rotated elements of a head."""
    shapes = f"cos {tuple(cos.shape)}, sin {tuple(sin.shape)}"
    if cos.dim() not in cos_dims or cos.shape != sin.shape:
        raise InputError(f"cos and sin must have one shape (seqlen, rotary_dim / 2), but: {shapes}")
    rotary_dim: int = 2 * cos.shape[-1]
    if rotary_dim > x.shape[-1]:
        raise InputError(f"rotary_dim is {rotary_dim} ({shapes}); allowed: at most the head dim, {x.shape[-1]}")
    return rotary_dim


def _check_range(first: int, last: int, rows: int) -> None:
    if first < 0 or last >= rows:
        raise InputError(
            f"positions {first} to {last} are asked for, but cos and sin have rows 0 to {rows - 1}. "
            "Make longer tables, or check seqlen_offsets"
        )


def _varlen_positions(total: int, cu_seqlens: Tensor, offsets: int | Tensor) -> Tensor:
    """Position of each packed token in its sequence, plus that sequence's offset; 0 beyond the last sequence."""
    tokens = torch.arange(total, device=cu_seqlens.device)
    starts = cu_seqlens.long()
    sequence = torch.searchsorted(starts[1:].contiguous(), tokens, right=True)  # len(cu_seqlens) - 1 beyond the last
    shift = torch.nn.functional.pad(offsets.long(), (0, 1))[sequence] if isinstance(offsets, Tensor) else offsets
    return torch.where(tokens < starts[-1], tokens - starts[sequence] + shift, 0)


def _positions(x: Tensor, offsets: int | Tensor, cu_seqlens: Tensor | None) -> Tensor:
    """Row of cos and sin for every token: (total,) or (batch, seqlen)."""
    sequences = x.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
    if isinstance(offsets, Tensor) and (tuple(offsets.shape) != (sequences,) or offsets.is_floating_point()):
        raise InputError(
            f"seqlen_offsets is {offsets.dtype} {tuple(offsets.shape)}; expected an int or integers ({sequences},)"
        )
    if cu_seqlens is not None:
        return _varlen_positions(x.shape[0], cu_seqlens, offsets)
    assert isinstance(offsets, Tensor)
    return torch.arange(x.shape[1], device=x.device) + offsets[:, None]


def _table_rows(
    x: Tensor, cos: Tensor, sin: Tensor, offsets: int | Tensor, cu_seqlens: Tensor | None, max_seqlen: int | None
) -> tuple[Tensor, Tensor]:
    """cos and sin of every token of x: (total, rotary_dim / 2), (seqlen, ...) or (batch, seqlen, ...)."""
    if cu_seqlens is not None and max_seqlen is None:
        raise InputError("cu_seqlens is given without max_seqlen; pass the longest sequence's length too")
    if x.dim() != (4 if cu_seqlens is None else 3):
        expected = "(batch, seqlen, nheads, headdim)" if cu_seqlens is None else "(total, nheads, headdim)"
        raise InputError(f"x has {x.dim()} dimensions, shape {tuple(x.shape)}; expected {expected}")
    if isinstance(offsets, int):
        longest = x.shape[1] if max_seqlen is None or cu_seqlens is None else max_seqlen
        _check_range(offsets, offsets + longest - 1, cos.shape[0])
        if cu_seqlens is None:
            return cos[offsets : offsets + longest], sin[offsets : offsets + longest]
    positions = _positions(x, offsets, cu_seqlens)
    # On a GPU the look-up itself checks its rows: asking here would make the host wait.
    if positions.is_cpu and positions.numel() and not torch.compiler.is_compiling():
        _check_range(int(positions.min()), int(positions.max()), cos.shape[0])
    rows = positions.flatten()
    return (
        cos.index_select(0, rows).unflatten(0, positions.shape),
        sin.index_select(0, rows).unflatten(0, positions.shape),
    )


def apply_rotary(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    seqlen_offsets: int | Tensor = 0,
    cu_seqlens: Tensor | None = None,
    max_seqlen: int | None = None,
    interleaved: bool = False,
    inplace: bool = False,
    conjugate: bool = False,
) -> Tensor:
    """Turn the first rotary_dim elements of every head; the others stay.

    Args:
        x: (batch, seqlen, nheads, headdim), or packed (total, nheads, headdim) with cu_seqlens.
        cos: (positions, rotary_dim / 2), one row for each position; any floating dtype.
        sin: like cos.
        seqlen_offsets: position of each sequence's first token; one for all, or integers (batch,).
        cu_seqlens: integers (batch + 1,), where packed sequences start and the last ends. Tokens after it have no
            defined result.
        max_seqlen: the longest packed sequence's length; needed with cu_seqlens.
        interleaved: pairs are neighbours (0, 1), (2, 3), ...; otherwise (0, rotary_dim / 2), ...
        inplace: write into x and return it.
        conjugate: turn backwards.

    Raises:
        InputError: shapes do not fit, or a position has no row (on a GPU with a tensor of offsets: torch's assertion).
    """
    rotary_dim = _check_tables(x, cos, sin, (2,))
    cos, sin = _table_rows(x, cos, sin, seqlen_offsets, cu_seqlens, max_seqlen)
    turned = _turn(x[..., :rotary_dim], cos, -sin if conjugate else sin, interleaved).to(x.dtype)
    if inplace:
        x[..., :rotary_dim].copy_(turned)
        return x
    return torch.cat((turned, x[..., rotary_dim:]), dim=-1) if rotary_dim < x.shape[-1] else turned


def apply_rotary_emb(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    interleaved: bool = False,
    inplace: bool = False,
    seqlen_offsets: int | Tensor = 0,
    cu_seqlens: Tensor | None = None,
    max_seqlen: int | None = None,
) -> Tensor:
    """`apply_rotary` with the order of arguments that models use; differentiable, in place too."""
    return apply_rotary(x, cos, sin, seqlen_offsets, cu_seqlens, max_seqlen, interleaved, inplace)


apply_rotary_emb_func = apply_rotary_emb


def apply_rotary_emb_torch(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False) -> Tensor:
    """Turn x (batch, seqlen, nheads, headdim) by tables that have a row for each of its tokens.

    cos and sin are (seqlen, rotary_dim / 2) or (batch, seqlen, rotary_dim / 2). The result has the dtype that x and cos
    promote to.

    Raises:
        InputError: shapes do not fit.
    """
    rotary_dim = _check_tables(x, cos, sin, (2, 3))
    dtype = torch.promote_types(x.dtype, cos.dtype)
    turned = _turn(x[..., :rotary_dim], cos, sin, interleaved).to(dtype)
    return torch.cat((turned, x[..., rotary_dim:].to(dtype)), dim=-1)


def apply_rotary_emb_qkv_(
    qkv: Tensor,
    cos: Tensor,
    sin: Tensor,
    cos_k: Tensor | None = None,
    sin_k: Tensor | None = None,
    interleaved: bool = False,
    seqlen_offsets: int | Tensor = 0,
    num_heads_q: int | None = None,
) -> Tensor:
    """Turn q and k inside of qkv, in place.

    Args:
        qkv: (batch, seqlen, 3, nheads, headdim), or (batch, seqlen, num_heads_q + 2 * num_heads_k, headdim).
        cos: as for `apply_rotary`; of q, and of k unless cos_k is given.
        sin: like cos.
        cos_k: of k, where it is turned otherwise (xPos).
        sin_k: like cos_k.
        interleaved: as for `apply_rotary`.
        seqlen_offsets: as for `apply_rotary`.
        num_heads_q: needed for the second form of qkv.

    Raises:
        InputError: shapes do not fit.
    """
    if qkv.dim() == 5 and qkv.shape[2] == 3:
        q, k = qkv[:, :, 0], qkv[:, :, 1]
    elif qkv.dim() == 4 and num_heads_q is not None and (qkv.shape[2] - num_heads_q) % 2 == 0:
        q, k = qkv[:, :, :num_heads_q], qkv[:, :, num_heads_q : (qkv.shape[2] + num_heads_q) // 2]
    else:
        raise InputError(
            f"qkv has shape {tuple(qkv.shape)} and num_heads_q is {num_heads_q}; allowed: "
            "(batch, seqlen, 3, nheads, headdim), or (batch, seqlen, num_heads_q + 2 * num_heads_k, headdim)"
        )
    apply_rotary(q, cos, sin, seqlen_offsets, interleaved=interleaved, inplace=True)
    cos_k, sin_k = cos if cos_k is None else cos_k, sin if sin_k is None else sin_k
    apply_rotary(k, cos_k, sin_k, seqlen_offsets, interleaved=interleaved, inplace=True)
    return qkv


def apply_rotary_emb_kv_(
    kv: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False, seqlen_offsets: int | Tensor = 0
) -> Tensor:
    """Turn k inside of kv (batch, seqlen, 2, nheads, headdim), in place; otherwise as `apply_rotary`.

    Raises:
        InputError: shapes do not fit.
    """
    if kv.dim() != 5 or kv.shape[2] != 2:
        raise InputError(f"kv has shape {tuple(kv.shape)}; expected (batch, seqlen, 2, nheads, headdim)")
    apply_rotary(kv[:, :, 0], cos, sin, seqlen_offsets, interleaved=interleaved, inplace=True)
    return kv


class RotaryEmbedding(torch.nn.Module):  # type: ignore[misc]  # mypy does not look into torch
    """Keeps tables of cos and sin that grow with the sequences, and turns q and k by them, in place.

    Args:
        dim: rotated elements of a head (rotary_dim).
        base: element pair i turns by base ** (-2 i / dim) a position.
        interleaved: as for `apply_rotary`.
        scale_base: not None: xPos, whose scores decay over about that many positions; 512 is usual.
        device: of the buffers.
    """

    inv_freq: Tensor
    scale: Tensor | None

    def __init__(
        self,
        dim: int,
        base: float = 10000.0,
        interleaved: bool = False,
        scale_base: float | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        self.dim = dim
        self.base = float(base)
        self.interleaved = interleaved
        self.scale_base = scale_base
        self.register_buffer("inv_freq", self._frequencies(device), persistent=False)
        self.register_buffer("scale", None if scale_base is None else self._decay(device), persistent=False)
        self._seq_len_cached = 0
        self._cos_cached: Tensor | None = None
        self._sin_cached: Tensor | None = None
        self._cos_k_cached: Tensor | None = None
        self._sin_k_cached: Tensor | None = None

    def _frequencies(self, device: torch.device | str | None) -> Tensor:
        pairs = torch.arange(0, self.dim, 2, device=device, dtype=torch.float32)
        return 1.0 / self.base ** (pairs / self.dim)

    def _decay(self, device: torch.device | str | None) -> Tensor:
        """xPos: how much of a pair's magnitude is left after scale_base positions."""
        pairs = torch.arange(0, self.dim, 2, device=device, dtype=torch.float32)
        return (pairs + 0.4 * self.dim) / (1.4 * self.dim)

    def _update_cos_sin_cache(
        self, seqlen: int, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> None:
        """Make tables for `seqlen` positions unless those that are there will do."""
        cached = self._cos_cached
        if (
            cached is not None
            and seqlen <= self._seq_len_cached
            and (cached.device, cached.dtype) == (device, dtype)
            and not (self.training and cached.is_inference())
        ):
            return
        self._seq_len_cached = seqlen
        # A module cast to 16 bits has lost its frequencies' accuracy; one that was given others keeps them.
        kept = self.inv_freq.dtype == torch.float32
        frequencies = self.inv_freq.to(device) if kept else self._frequencies(device)
        angles = torch.outer(torch.arange(seqlen, device=device, dtype=torch.float32), frequencies)
        cos, sin = torch.cos(angles), torch.sin(angles)
        if self.scale is None or self.scale_base is None:
            self._cos_cached, self._sin_cached = cos.to(dtype), sin.to(dtype)
            return
        decay = self.scale.to(device) if self.scale.dtype == torch.float32 else self._decay(device)
        # Only differences of positions matter; counted from the middle, the powers stay small.
        steps = torch.arange(seqlen, device=device, dtype=torch.float32) - seqlen // 2
        magnitude = decay ** (steps / self.scale_base)[:, None]
        self._cos_cached, self._sin_cached = (cos * magnitude).to(dtype), (sin * magnitude).to(dtype)
        self._cos_k_cached, self._sin_k_cached = (cos / magnitude).to(dtype), (sin / magnitude).to(dtype)

    def forward(
        self,
        qkv: Tensor,
        kv: Tensor | None = None,
        seqlen_offset: int | Tensor = 0,
        max_seqlen: int | None = None,
        num_heads_q: int | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Turn q and k in place.

        Args:
            qkv: as for `apply_rotary_emb_qkv_`; with kv, only q (batch, seqlen, nheads, headdim).
            kv: (batch, seqlen, 2, nheads, headdim).
            seqlen_offset: as for `apply_rotary`.
            max_seqlen: positions that the tables must have; needed with a tensor of offsets.
            num_heads_q: as for `apply_rotary_emb_qkv_`.

        Returns:
            qkv, or q and kv.

        Raises:
            InputError: shapes do not fit, or a tensor of offsets came without max_seqlen before there were tables.
        """
        if max_seqlen is not None:
            self._update_cos_sin_cache(max_seqlen, qkv.device, qkv.dtype)
        elif isinstance(seqlen_offset, int):
            self._update_cos_sin_cache(qkv.shape[1] + seqlen_offset, qkv.device, qkv.dtype)
        cos, sin = self._cos_cached, self._sin_cached
        if cos is None or sin is None:
            raise InputError("seqlen_offset is a tensor and there are no tables yet; pass max_seqlen")
        scaled = self.scale is not None
        cos_k, sin_k = (self._cos_k_cached, self._sin_k_cached) if scaled else (cos, sin)
        if kv is None:
            return apply_rotary_emb_qkv_(
                qkv, cos, sin, cos_k, sin_k, self.interleaved, seqlen_offset, num_heads_q=num_heads_q
            )
        assert cos_k is not None and sin_k is not None
        q = apply_rotary_emb(qkv, cos, sin, self.interleaved, inplace=True, seqlen_offsets=seqlen_offset)
        return q, apply_rotary_emb_kv_(kv, cos_k, sin_k, self.interleaved, seqlen_offset)
