"""Tables whose first sequence starts behind the first row: rows before it count like those after the last sequence."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from flash_attn_rocm import flash_attn_varlen_func
from flash_attn_rocm.flash_attn_interface import _flash_attn_varlen_forward
from flash_attn_rocm.reference import Dropped, Mask, Scoring, attention_in
from flash_attn_rocm.reference_sequences import varlen_in
from tests.kernels.test_features import normal
from tests.kernels.test_varlen_tables import SCALE, ints, paged

LENGTHS_Q, LENGTHS_K = [3, 0, 70], [90, 7, 130]
BEFORE_Q, BEFORE_K, AFTER = 5, 9, 2  # rows of no sequence
STARTS_Q, STARTS_K = (
    ints([*itertools.accumulate(lengths, initial=before)])
    for lengths, before in ((LENGTHS_Q, BEFORE_Q), (LENGTHS_K, BEFORE_K))
)
CAUSAL = Scoring(SCALE, Mask(right=0))


def rows_of(starts: Tensor, heads: int, seed: int) -> Tensor:
    """Random (rows, heads, 64), NaN in the rows of no sequence."""
    tensor = torch.full((int(starts[-1]) + AFTER, heads, 64), float("nan"), dtype=torch.bfloat16)
    tensor[starts[0] : starts[-1]] = normal(int(starts[-1] - starts[0]), heads, 64, seed=seed)
    return tensor


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    """q (80, 4, 64), k and v (238, 2, 64)."""
    return rows_of(STARTS_Q, 4, 0), rows_of(STARTS_K, 2, 1), rows_of(STARTS_K, 2, 2)


@pytest.mark.parametrize(
    "tables", ["starts", "seqused_k", "leftpad_k", "pages of 16", "pages of 64", "parts", "dropout"]
)
def test_forward(device: str, tables: str) -> None:
    q, k, v = inputs()
    given: dict[str, Tensor] = {}
    if tables.startswith("pages"):  # where keys lie in pages, only the differences of cu_seqlens_k count
        k, v, given["block_table"] = paged(LENGTHS_K, int(tables.removeprefix("pages of ")))
    if tables == "seqused_k":
        given["seqused_k"] = ints([80, 0, 130])
    if tables == "leftpad_k":
        given["leftpad_k"] = ints([33, 1, 0])
    dropout_p = 0.25 if tables == "dropout" else 0.0
    options: dict[str, Any] = {"zero_tensors": True, "num_splits": 2 if tables == "parts" else 0}
    options["return_softmax"] = dropout_p > 0.0
    out, lse, random_map, _ = _flash_attn_varlen_forward(
        *(tensor.to(device) for tensor in (q, k, v, STARTS_Q, STARTS_K)),
        max(LENGTHS_Q),
        max(LENGTHS_K),
        dropout_p,
        SCALE,
        True,
        **options,
        **{name: table.to(device) for name, table in given.items()},
    )
    dropped = Dropped(dropout_p, random_map.cpu()) if dropout_p else None
    call = (q, k, v, STARTS_Q, STARTS_K, CAUSAL)
    exact, exact_lse = varlen_in(torch.float64, *call, **given, dropped=dropped)
    same_dtype, _ = varlen_in(torch.bfloat16, *call, **given, dropped=dropped)
    allowed = 2 * (same_dtype.double() - exact).abs().max().item() + 1e-5
    assert (out.cpu().double() - exact).abs().max().item() <= allowed  # zeros in rows of no sequence
    assert exact[BEFORE_Q:].abs().max() > 0
    hidden = torch.isneginf(exact_lse)
    assert torch.equal(torch.isneginf(lse.cpu()), hidden)
    torch.testing.assert_close(lse.cpu().double()[~hidden], exact_lse[~hidden], atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("deterministic", [False, True])
def test_gradients(device: str, deterministic: bool) -> None:
    """Zeros in rows of no sequence, though these hold NaN, as does what is handed down for them."""
    tensors = inputs()
    leaves = [tensor.to(device, copy=True).requires_grad_() for tensor in tensors]
    starts = STARTS_Q.to(device), STARTS_K.to(device)
    weight = rows_of(STARTS_Q, 4, 3)
    out = flash_attn_varlen_func(
        *leaves, *starts, 70, 130, softmax_scale=SCALE, causal=True, deterministic=deterministic
    )
    assert isinstance(out, Tensor)
    got = torch.autograd.grad(out, leaves, weight.to(device))
    doubles = [tensor.double().requires_grad_() for tensor in tensors]
    for b, length in enumerate(LENGTHS_Q):
        queries = slice(int(STARTS_Q[b]), int(STARTS_Q[b]) + length)
        keys = slice(int(STARTS_K[b]), int(STARTS_K[b + 1]))
        parts = [doubles[0][None, queries], *(tensor[None, keys] for tensor in doubles[1:])]
        exact, _ = attention_in(torch.float64, *parts, CAUSAL)
        (exact[0] * weight[queries].double()).sum().backward()
    for one, double in zip(got, doubles, strict=True):
        assert double.grad is not None
        bound = 3 * 2.0**-8 * max(1.0, double.grad.abs().max().item())
        assert (one.cpu().double() - double.grad).abs().max().item() <= bound
