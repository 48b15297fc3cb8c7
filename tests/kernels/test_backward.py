"""The backward ops against float64 autograd, through real kernels: up to 3 times torch's error in the same dtype."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from flash_attn_rocm.flash_attn_interface import _flash_attn_varlen_backward
from tests.kernels.backward_reference import check_gradients
from tests.kernels.feature_reference import Features
from tests.kernels.test_features import LENGTHS, SCALE, load_ops, normal, op_arguments, starts

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
MASKS = {"full": Features(), "causal": Features(causal=True), "window": Features(window=(20, 7))}


def backward_arguments(features: Features, deterministic: bool = False) -> dict[str, Any]:
    """The backward op's keyword arguments for these features."""
    arguments = op_arguments(features)
    del arguments["softcap"]
    return {**arguments, "deterministic": deterministic}


def run_batch(
    device: str,
    tensors: tuple[Tensor, Tensor, Tensor],
    features: Features,
    *,
    slopes: Tensor | None = None,
    deterministic: bool = False,
    drawn: bool = False,
) -> tuple[Tensor, ...]:
    """Forward and backward ops, compared batch entry by batch entry; returns dq, dk, dv."""
    ops = load_ops()
    q, k, v = (tensor.to(device) for tensor in tensors)
    dout = normal(*q.shape, dtype=q.dtype, seed=9)
    state = torch.tensor([7, 11], dtype=torch.int64, device=device) if features.dropout_p else None
    own = None if slopes is None else slopes.to(device)
    out, lse, random = ops.fwd(q, k, v, own, state, **op_arguments(features), return_dropout_map=features.dropout_p > 0)
    *grads, softmax_d = ops.bwd(
        dout.to(device), q, k, v, out, lse, own, state, **backward_arguments(features, deterministic)
    )
    expected_d = (1 - features.dropout_p) * (dout.double() * out.cpu().double()).sum(-1).transpose(1, 2)
    torch.testing.assert_close(softmax_d.cpu().double(), expected_d, atol=1e-4, rtol=1e-4)
    for b in range(q.shape[0]):
        kept = random[b].cpu() <= math.floor(255 * (1 - features.dropout_p)) if features.dropout_p else None
        this = Features(features.causal, features.window, 0.0, slopes, kept, features.dropout_p, SCALE)
        inputs = tuple(tensor[b] for tensor in tensors)
        check_gradients(tuple(grad[b] for grad in grads), inputs, dout[b], this, f"batch entry {b}", drawn=drawn)
    return tuple(grads)


def make(
    batch: int, lengths: tuple[int, int], heads: tuple[int, int], hdim: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v (batch, length, heads, hdim)."""
    q = normal(batch, lengths[0], heads[0], hdim, dtype=dtype)
    k, v = (normal(batch, lengths[1], heads[1], hdim, dtype=dtype, seed=seed) for seed in (1, 2))
    return q, k, v


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("lengths", [(64, 64), (33, 100), (130, 65), (1, 77)], ids=str)
def test_batch(kernel_device: str, lengths: tuple[int, int], dtype: torch.dtype, mask: Features) -> None:
    """More queries than keys too: rows and keys that nothing reaches get exact zeros."""
    run_batch(kernel_device, make(2, lengths, (4, 2), 128, dtype), mask)


@pytest.mark.parametrize("hdim", [40, 64, 96])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_smaller_head_dims(kernel_device: str, hdim: int, mask: Features) -> None:
    run_batch(kernel_device, make(1, (70, 90), (2, 2), hdim, torch.bfloat16), mask)


@pytest.mark.parametrize("hdim", [136, 160, 192, 200, 256])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_wide_head_dims(kernel_device: str, hdim: int, mask: Features) -> None:
    """By a pipeline of our own; 7 rows of the third step of queries and 26 keys of the second tile are in use."""
    run_batch(kernel_device, make(1, (71, 90), (4, 2), hdim, torch.bfloat16), mask)


@pytest.mark.parametrize("lengths", [(64, 128), (1, 77), (130, 65)], ids=str)
def test_lengths_with_wide_head_dims(kernel_device: str, lengths: tuple[int, int]) -> None:
    run_batch(kernel_device, make(2, lengths, (2, 1), 256, torch.bfloat16), Features(causal=True))


@pytest.mark.parametrize("heads", [(3, 3), (4, 1), (6, 2)], ids=["alike", "one key head", "grouped"])
def test_heads(kernel_device: str, heads: tuple[int, int]) -> None:
    """dk and dv of the query heads that share a key head are summed."""
    run_batch(kernel_device, make(2, (33, 70), heads, 64, torch.bfloat16), Features())


@pytest.mark.parametrize("lengths", [(70, 90), (90, 70)], ids=str)
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_alibi_and_dropout(kernel_device: str, mask: Features, lengths: tuple[int, int]) -> None:
    """The same random numbers as in the forward call: what was dropped there has no gradient."""
    features = Features(mask.causal, mask.window, dropout_p=0.3)
    slopes = torch.tensor([0.1, 0.3])
    run_batch(kernel_device, make(2, lengths, (2, 1), 64, torch.bfloat16), features, slopes=slopes)


@pytest.mark.parametrize("hdim", [72, 128])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_dropout(kernel_device: str, mask: Features, hdim: int) -> None:
    features = Features(mask.causal, mask.window, dropout_p=0.17)
    run_batch(kernel_device, make(2, (70, 90), (4, 2), hdim, torch.bfloat16), features)


@pytest.mark.parametrize("hdim", [64, 192])
def test_deterministic(kernel_device: str, hdim: int) -> None:
    """Two runs give the same bits."""
    tensors = make(2, (70, 200), (4, 2), hdim, torch.bfloat16)
    first = run_batch(kernel_device, tensors, Features(), deterministic=True)
    second = run_batch(kernel_device, tensors, Features(), deterministic=True)
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)


def run_varlen_backward(
    device: str,
    lengths: list[tuple[int, int]],
    features: Features,
    *,
    hdim: int = 128,
    dtype: torch.dtype = torch.bfloat16,
    slopes: Tensor | None = None,
    deterministic: bool = True,
    drawn: bool = False,
) -> tuple[Tensor, ...]:
    """Forward and backward ops of sequences, compared one by one; rows behind the last sequence must get zeros.

    `slopes`: (batch, 4), of the query heads. Returns dq, dk, dv.
    """
    ops = load_ops()
    lengths_q, lengths_k = [q for q, _ in lengths], [k for _, k in lengths]
    starts_q, starts_k = starts(lengths_q), starts(lengths_k)
    q = normal(sum(lengths_q) + 3, 4, hdim, dtype=dtype)
    k, v = (normal(sum(lengths_k) + 2, 2, hdim, dtype=dtype, seed=seed) for seed in (1, 2))
    dout = normal(*q.shape, dtype=dtype, seed=9)
    p = features.dropout_p
    sizes = {"max_seqlen_q": max(lengths_q), "max_seqlen_k": max(lengths_k)}
    on = [tensor.to(device) for tensor in (q, k, v)]
    cu = [tensor.to(device) for tensor in (starts_q, starts_k)]
    extra = (
        None if slopes is None else slopes.to(device),
        torch.tensor([7, 11], dtype=torch.int64, device=device) if p else None,
    )
    arguments = {**op_arguments(features), **sizes, "return_dropout_map": p > 0}
    out, lse, random = ops.varlen_fwd(*on, *cu, None, None, *extra, **arguments)
    out[starts_q[-1] :], lse[:, starts_q[-1] :] = 0, 0
    dq, dk, dv, _ = ops.varlen_bwd(
        dout.to(device), *on, out, lse, *cu, *extra, **backward_arguments(features, deterministic), **sizes
    )
    for b in range(len(lengths)):
        rows, keys = slice(starts_q[b], starts_q[b + 1]), slice(starts_k[b], starts_k[b + 1])
        kept = random[:, rows, : lengths_k[b]].cpu() <= math.floor(255 * (1 - p)) if p else None
        own = None if slopes is None else slopes[b]
        this = Features(features.causal, features.window, 0.0, own, kept, p, SCALE)
        inputs = (q[rows], k[keys], v[keys])
        check_gradients((dq[rows], dk[keys], dv[keys]), inputs, dout[rows], this, f"sequence {b}", drawn=drawn)
    for grad, used in ((dq, starts_q[-1]), (dk, starts_k[-1]), (dv, starts_k[-1])):
        assert (grad[used:] == 0).all()
    return dq, dk, dv


@pytest.mark.parametrize("deterministic", [False, True], ids=["any order", "deterministic"])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_varlen(kernel_device: str, mask: Features, deterministic: bool) -> None:
    """Empty sequences of queries, of keys and of both among others; the last one empty."""
    run_varlen_backward(kernel_device, LENGTHS, mask, deterministic=deterministic)


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_varlen_with_alibi(kernel_device: str, mask: Features) -> None:
    """Every sequence has slopes of its own; dq is added up by atomics."""
    slopes = torch.tensor([[0.1, 0.3, 0.05, 0.2]]) * torch.arange(1, len(LENGTHS) + 1)[:, None] / 4
    run_varlen_backward(kernel_device, LENGTHS, mask, slopes=slopes, deterministic=False)


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_varlen_with_dropout(kernel_device: str, mask: Features) -> None:
    """Two runs give the same bits, too."""
    features = Features(mask.causal, mask.window, dropout_p=0.3)
    first = run_varlen_backward(kernel_device, LENGTHS, features)
    second = run_varlen_backward(kernel_device, LENGTHS, features)
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)


def test_alibi_of_long_sequences_is_refused(kernel_device: str) -> None:
    """CK's kernels take the distances modulo 2^16."""
    ops = load_ops()
    q = torch.zeros(1, 1, 2, 64, dtype=torch.bfloat16, device=kernel_device)
    k = torch.zeros(1, 1, 2, 64, dtype=torch.bfloat16, device=kernel_device).expand(1, 65537, 2, 64)
    lse = torch.zeros(1, 2, 1, device=kernel_device)
    slopes, state = torch.ones(2, device=kernel_device), torch.tensor([1, 2], device=kernel_device)
    with pytest.raises(RuntimeError, match="65536"):
        ops.bwd(q, q, k, k, q, lse, slopes, state, **backward_arguments(Features(dropout_p=0.5)))


def test_given_tensors_may_be_views(kernel_device: str) -> None:
    """Gradients of a packed qkv, written into the packed gradient: the same bits as new ones."""
    ops = load_ops()
    qkv = normal(2, 70, 3, 2, 64).to(kernel_device)
    q, k, v = qkv.unbind(2)
    dout = normal(1, 1, 1, 1, seed=9).expand(2, 70, 2, 64).to(kernel_device)
    out, lse, _ = ops.fwd(q, k, v, **op_arguments(Features()))
    arguments = backward_arguments(Features(), deterministic=True)
    *expected, expected_d = ops.bwd(dout, q, k, v, out, lse, **arguments)
    apart = torch.full((2, 70, 3, 64, 2), math.nan, dtype=qkv.dtype).transpose(3, 4)  # head dim not contiguous
    for packed in (torch.full_like(qkv, math.nan), apart):
        given = packed.to(kernel_device).unbind(2)
        softmax_d = ops.bwd_out(dout, q, k, v, out, lse, *given, **arguments)
        for ours, right in zip((*given, softmax_d), (*expected, expected_d), strict=True):
            assert torch.equal(ours, right)


@pytest.mark.parametrize("name", ["dout", "q", "k", "v"])
@pytest.mark.parametrize(
    ("stride", "queries"), [(0, 70), (8, 70), (0, 1)], ids=["expanded", "overlapping", "one row of stride 0"]
)
def test_rows_that_share_memory(kernel_device: str, name: str, stride: int, queries: int) -> None:
    """As of the gradient of a sum over rows. A kernel without mask must not take what follows the last row for rows."""
    tensors = dict(zip("qkv", make(1, (queries, 90), (2, 2), 64, torch.bfloat16), strict=True))
    tensors["dout"] = normal(1, queries, 2, 64, seed=9)
    rows = tensors[name].shape[1]
    tensors[name] = normal(rows * stride + 128, seed=5).as_strided((1, rows, 2, 64), (0, stride, 64, 1))
    q, k, v, dout = (tensors[key].to(kernel_device) for key in ("q", "k", "v", "dout"))
    ops = load_ops()
    out, lse, _ = ops.fwd(q, k, v, **op_arguments(Features()))
    *grads, _ = ops.bwd(dout, q, k, v, out, lse, **backward_arguments(Features()))
    own = tuple(tensors[key][0] for key in "qkv")
    check_gradients(tuple(grad[0] for grad in grads), own, tensors["dout"][0], Features(scale=SCALE), name)


@pytest.mark.parametrize("name", ["dq", "dk", "dv"])
def test_gradients_that_share_memory_are_refused(kernel_device: str, name: str) -> None:
    ops = load_ops()
    q, k, v = (tensor.to(kernel_device) for tensor in make(1, (5, 7), (2, 2), 64, torch.bfloat16))
    out, lse, _ = ops.fwd(q, k, v, **op_arguments(Features()))
    given = {"dq": torch.empty_like(q), "dk": torch.empty_like(k), "dv": torch.empty_like(v)}
    given[name] = given[name][:, :1].expand_as(given[name])
    with pytest.raises(RuntimeError, match=rf"{name} has shape .* and stride 0 in dimension 1"):
        ops.bwd_out(out, q, k, v, out, lse, *given.values(), **backward_arguments(Features()))


@pytest.mark.parametrize("group", [False, True], ids=["batch", "varlen"])
def test_gradients_may_lie_where_inputs_are(kernel_device: str, group: bool) -> None:
    """dq over q, dk over v and dv over k, which kernels still read when they write gradients."""
    ops = load_ops()
    tensors = [tensor.to(kernel_device) for tensor in make(1, (70, 90), (2, 2), 64, torch.bfloat16)]
    q, k, v = (tensor[0] for tensor in tensors) if group else tensors
    cu = [starts([n]).to(kernel_device) for n in (70, 90)] if group else []
    sizes = {"max_seqlen_q": 70, "max_seqlen_k": 90} if group else {}
    forward, backward, into = (
        (ops.varlen_fwd, ops.varlen_bwd, ops.varlen_bwd_out) if group else (ops.fwd, ops.bwd, ops.bwd_out)
    )
    out, lse, _ = forward(q, k, v, *cu, **op_arguments(Features()), **sizes)
    dout = normal(*q.shape, seed=9).to(kernel_device)
    arguments = {**backward_arguments(Features(), deterministic=True), **sizes}
    *expected, _ = backward(dout, q, k, v, out, lse, *cu, **arguments)
    into(dout, q, k, v, out, lse, *cu, q, v, k, **arguments)
    for ours, right in zip((q, v, k), expected, strict=True):
        assert torch.equal(ours, right)


def test_maxima_beyond_all_sequences_cost_nothing(kernel_device: str) -> None:
    """They would be as many parts of dq: 2^31 keys are 2^25 times 36 KiB here."""
    ops = load_ops()
    q, k, v = (tensor[0].to(kernel_device) for tensor in make(1, (70, 90), (2, 2), 128, torch.bfloat16))
    cu = [starts([20, 50]).to(kernel_device), starts([90, 0]).to(kernel_device)]
    most = {"max_seqlen_q": 2**31 - 1, "max_seqlen_k": 2**31 - 1}
    exact = {"max_seqlen_q": 50, "max_seqlen_k": 90}
    out, lse, _ = ops.varlen_fwd(q, k, v, *cu, **op_arguments(Features()), **exact)
    arguments = backward_arguments(Features(), deterministic=True)
    *expected, _ = ops.varlen_bwd(q, q, k, v, out, lse, *cu, **arguments, **exact)
    *of_op, _ = ops.varlen_bwd(q, q, k, v, out, lse, *cu, **arguments, **most)
    given = [torch.empty_like(tensor) for tensor in (q, k, v)]
    _flash_attn_varlen_backward(
        q, q, k, v, out, lse, *given, *cu, *most.values(), 0.0, SCALE, False, -1, -1, 0.0, None, True
    )
    for right, *others in zip(expected, of_op, given, strict=True):
        assert all(torch.equal(right, other) for other in others)


@pytest.mark.parametrize("lengths", [(0, 5), (5, 0)], ids=["no queries", "no keys"])
def test_nothing_to_attend_to(kernel_device: str, lengths: tuple[int, int]) -> None:
    ops = load_ops()
    q, k, v = (tensor.to(kernel_device) for tensor in make(2, lengths, (2, 2), 64, torch.bfloat16))
    out, lse, _ = ops.fwd(q, k, v, **op_arguments(Features()))
    for grad in ops.bwd(torch.ones_like(q), q, k, v, out, lse, **backward_arguments(Features())):
        assert (grad == 0).all()


def test_torch_accepts_the_ops(kernel_device: str) -> None:
    """Schemas say what is written, and fakes what comes back."""
    ops = load_ops()
    q, k, v = (tensor.to(kernel_device) for tensor in make(1, (40, 50), (2, 1), 64, torch.bfloat16))
    out, lse, _ = ops.fwd(q, k, v, **op_arguments(Features()))
    cu = [torch.tensor([0, n], dtype=torch.int32, device=kernel_device) for n in (40, 50)]
    sizes = {"max_seqlen_q": 40, "max_seqlen_k": 50}
    batch = (torch.ones_like(q), q, k, v, out, lse)
    group = tuple(tensor[0] for tensor in batch)
    given = [torch.empty_like(tensor) for tensor in (q, k, v)]
    arguments = backward_arguments(Features())
    for op, tensors, more in (
        (ops.bwd, batch, {}),
        (ops.bwd_out, (*batch, *given), {}),
        (ops.varlen_bwd, (*group, *cu), sizes),
        (ops.varlen_bwd_out, (*group, *cu, *[tensor[0] for tensor in given]), sizes),
    ):
        checks = ("test_schema", "test_faketensor")
        torch.library.opcheck(op.default, tensors, {**arguments, **more}, test_utils=checks)
