"""Rotary embeddings against complex multiplication in float64: in place or not, packed or not, and their gradients."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flash_attn_rocm.errors import InputError
from flash_attn_rocm.layers import rotary

GENERATOR = torch.Generator().manual_seed(23)


def random(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=GENERATOR, dtype=torch.float64).to(dtype)


def tables(rows: int, rotary_dim: int, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin of unrelated angles, so that a wrong row or column shows."""
    angles = random(rows, rotary_dim // 2)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def turned(
    head: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *, interleaved: bool, conjugate: bool = False
) -> torch.Tensor:
    """One head (headdim,) in float64: each pair is a complex number, multiplied by cos + i sin."""
    rotary_dim = 2 * cos.shape[0]
    out = head.double().clone()
    for pair in range(rotary_dim // 2):
        first, second = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + rotary_dim // 2)
        factor = complex(float(cos[pair]), float(sin[pair]))
        product = complex(float(head[first]), float(head[second])) * (factor.conjugate() if conjugate else factor)
        out[first], out[second] = product.real, product.imag
    return out


def expected(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, positions: list[list[int]], **how: bool
) -> torch.Tensor:
    """x (batch, seqlen, nheads, headdim) with the token (b, i) turned by row positions[b][i]."""
    out = x.double().clone()
    for b, i, h in itertools.product(*map(range, x.shape[:3])):
        row = positions[b][i]
        out[b, i, h] = turned(x[b, i, h], cos[row], sin[row], **how)
    return out


def allowed(reference: torch.Tensor, dtype: torch.dtype) -> float:
    """Rounding of one result: the computation is float32 or better."""
    return max(torch.finfo(dtype).eps, 4 * torch.finfo(torch.float32).eps * (dtype != torch.float64)) * float(
        reference.abs().max()
    )


@given(
    headdim=st.sampled_from([4, 8, 10]),
    rotary_dim=st.sampled_from([2, 4]),
    offsets=st.one_of(st.integers(0, 5), st.lists(st.integers(0, 5), min_size=2, max_size=2)),
    interleaved=st.booleans(),
    inplace=st.booleans(),
    conjugate=st.booleans(),
    dtype=st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]),
)
def test_padded_batch(
    headdim: int,
    rotary_dim: int,
    offsets: int | list[int],
    interleaved: bool,
    inplace: bool,
    conjugate: bool,
    dtype: torch.dtype,
) -> None:
    x = random(2, 3, 2, headdim, dtype=dtype)
    before = x.clone()
    cos, sin = tables(8, rotary_dim, dtype)
    starts = [offsets] * 2 if isinstance(offsets, int) else offsets
    argument = offsets if isinstance(offsets, int) else torch.tensor(offsets, dtype=torch.int32)
    got = rotary.apply_rotary(x, cos, sin, argument, interleaved=interleaved, inplace=inplace, conjugate=conjugate)
    positions = [[start + i for i in range(3)] for start in starts]
    exact = expected(before, cos, sin, positions, interleaved=interleaved, conjugate=conjugate)
    assert got.dtype == dtype
    assert (got.double() - exact).abs().max() <= allowed(exact, dtype)
    assert torch.equal(got[..., rotary_dim:], before[..., rotary_dim:])
    assert torch.equal(x, got if inplace else before)
    assert (got.data_ptr() == x.data_ptr()) == inplace


@given(
    lengths=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    tensor_offsets=st.booleans(),
    interleaved=st.booleans(),
    inplace=st.booleans(),
    index_dtype=st.sampled_from([torch.int32, torch.int64]),
)
def test_packed_sequences(
    lengths: list[int], tensor_offsets: bool, interleaved: bool, inplace: bool, index_dtype: torch.dtype
) -> None:
    total = sum(lengths)
    x = random(total, 2, 6, dtype=torch.float32)
    cos, sin = tables(10, 4)
    offsets = [3 + n for n in range(len(lengths))] if tensor_offsets else [2] * len(lengths)
    positions = [start + i for start, length in zip(offsets, lengths, strict=True) for i in range(length)]
    exact = expected(x[None], cos, sin, [positions], interleaved=interleaved)[0]
    cu_seqlens = torch.tensor([0, *itertools.accumulate(lengths)], dtype=index_dtype)
    got = rotary.apply_rotary_emb(
        x,
        cos,
        sin,
        interleaved,
        inplace,
        seqlen_offsets=torch.tensor(offsets, dtype=index_dtype) if tensor_offsets else 2,
        cu_seqlens=cu_seqlens,
        max_seqlen=max(lengths),
    )
    assert got.shape == x.shape
    if total:
        assert (got.double() - exact).abs().max() <= allowed(exact, torch.float32)


def test_tokens_after_the_last_sequence_disturb_nothing() -> None:
    x, (cos, sin) = random(7, 1, 4), tables(3, 4)
    cu_seqlens = torch.tensor([0, 1, 4])
    got = rotary.apply_rotary_emb(x, cos, sin, cu_seqlens=cu_seqlens, max_seqlen=3)
    alone = rotary.apply_rotary_emb(x[:4], cos, sin, cu_seqlens=cu_seqlens, max_seqlen=3)
    assert torch.equal(got[:4], alone)


@pytest.mark.parametrize("interleaved", [False, True])
def test_tables_of_a_row_for_each_token(interleaved: bool) -> None:
    x, (cos, sin) = random(2, 3, 2, 6, dtype=torch.bfloat16), tables(6, 4, torch.float32)
    same = rotary.apply_rotary_emb_torch(x, cos[:3], sin[:3], interleaved)
    own = rotary.apply_rotary_emb_torch(x, cos.reshape(2, 3, 2), sin.reshape(2, 3, 2), interleaved)
    assert same.dtype == own.dtype == torch.float32  # what x and cos promote to
    for got, positions in ((same, [[0, 1, 2]] * 2), (own, [[0, 1, 2], [3, 4, 5]])):
        exact = expected(x, cos, sin, positions, interleaved=interleaved)
        assert (got.double() - exact).abs().max() <= allowed(exact, torch.float32)


def as_function(x: torch.Tensor, arguments: dict[str, Any]) -> torch.Tensor:
    """In place on a copy, so that the leaf itself is not written to."""
    return rotary.apply_rotary_emb(x.clone() if arguments.get("inplace") else x, **arguments)


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("offsets", [1, torch.tensor([3, 0])], ids=["int", "tensor"])
def test_gradients_turn_backwards(offsets: int | torch.Tensor, interleaved: bool, inplace: bool) -> None:
    cos, sin = tables(6, 4)
    arguments = {"cos": cos, "sin": sin, "interleaved": interleaved, "inplace": inplace, "seqlen_offsets": offsets}
    x = random(2, 3, 2, 6).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: as_function(x, arguments), (x,))
    assert torch.autograd.gradgradcheck(lambda x: as_function(x, arguments), (x,))
    weights = random(2, 3, 2, 6)
    (grad,) = torch.autograd.grad((as_function(x, arguments) * weights).sum(), x)
    back = rotary.apply_rotary(weights, cos, sin, offsets, interleaved=interleaved, conjugate=True)
    assert torch.allclose(grad, back, rtol=1e-12, atol=1e-12)


def test_gradients_of_packed_sequences() -> None:
    cos, sin = tables(4, 4)
    cu_seqlens = torch.tensor([0, 2, 2, 5], dtype=torch.int32)
    x = random(5, 2, 6).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x: rotary.apply_rotary_emb(x, cos, sin, cu_seqlens=cu_seqlens, max_seqlen=3), (x,)
    )


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("separate_k", [False, True])
@pytest.mark.parametrize("grouped", [False, True])
def test_packed_qkv_in_place(interleaved: bool, separate_k: bool, grouped: bool) -> None:
    cos, sin = tables(4, 4)
    cos_k, sin_k = tables(4, 4) if separate_k else (cos, sin)
    heads_k = 1 if grouped else 2
    qkv = random(2, 3, 2 + 2 * heads_k, 6) if grouped else random(2, 3, 3, 2, 6)
    flat = qkv.clone().reshape(2, 3, -1, 6)
    positions = [[1, 2, 3]] * 2
    parts = [
        expected(flat[:, :, :2], cos, sin, positions, interleaved=interleaved),
        expected(flat[:, :, 2 : 2 + heads_k], cos_k, sin_k, positions, interleaved=interleaved),
        flat[:, :, 2 + heads_k :],
    ]
    got = rotary.apply_rotary_emb_qkv_(
        qkv,
        cos,
        sin,
        cos_k if separate_k else None,
        sin_k if separate_k else None,
        interleaved=interleaved,
        seqlen_offsets=1,
        num_heads_q=2 if grouped else None,
    )
    assert got is qkv
    assert torch.allclose(qkv.reshape(2, 3, -1, 6), torch.cat(parts, dim=2), rtol=1e-12, atol=1e-12)
    leaf = random(*qkv.shape).requires_grad_()
    grouped_arguments = {"num_heads_q": 2} if grouped else {}
    assert torch.autograd.gradcheck(
        lambda x: rotary.apply_rotary_emb_qkv_(x.clone(), cos, sin, cos_k, sin_k, interleaved, 1, **grouped_arguments),
        (leaf,),
    )


def test_packed_kv_in_place() -> None:
    cos, sin = tables(4, 4)
    kv = random(2, 3, 2, 2, 6)
    before = kv.clone()
    assert rotary.apply_rotary_emb_kv_(kv, cos, sin, seqlen_offsets=torch.tensor([0, 1])) is kv
    exact = expected(before[:, :, 0], cos, sin, [[0, 1, 2], [1, 2, 3]], interleaved=False)
    assert torch.allclose(kv[:, :, 0], exact, rtol=1e-12, atol=1e-12)
    assert torch.equal(kv[:, :, 1], before[:, :, 1])


def score(module: rotary.RotaryEmbedding, q: torch.Tensor, k: torch.Tensor, i: int, j: int, rows: int) -> float:
    """q at position i times k at position j, through the module: (1, rows, 1, headdim) and packed kv."""
    queries, kv = q.expand(1, rows, 1, -1).clone(), k.expand(1, rows, 2, 1, -1).clone()
    queries, kv = module(queries, kv)
    return float(queries[0, i, 0] @ kv[0, j, 0, 0])


@pytest.mark.parametrize("scale_base", [None, 32.0])
@pytest.mark.parametrize("interleaved", [False, True])
def test_module_turns_by_position_times_frequency(interleaved: bool, scale_base: float | None) -> None:
    """RoFormer and xPos: the score of positions i and j is Re sum q k* exp(i (i - j) base^(-2p/d)) zeta_p^((i-j)/b)."""
    dim, rows = 8, 12
    module = rotary.RotaryEmbedding(dim, base=100.0, interleaved=interleaved, scale_base=scale_base)
    q, k = random(dim), random(dim)
    for i, j in ((0, 0), (5, 2), (11, 0), (3, 9)):
        exact = 0.0
        for p in range(dim // 2):
            a, b = (2 * p, 2 * p + 1) if interleaved else (p, p + dim // 2)
            angle = torch.tensor((i - j) * 100.0 ** (-2 * p / dim), dtype=torch.float64)
            factor = complex(float(angle.cos()), float(angle.sin()))
            decay = 1.0 if scale_base is None else ((2 * p + 0.4 * dim) / (1.4 * dim)) ** ((i - j) / scale_base)
            pair = complex(float(q[a]), float(q[b])) * complex(float(k[a]), float(k[b])).conjugate()
            exact += (pair * factor).real * decay
        assert score(module, q, k, i, j, rows) == pytest.approx(exact, abs=2e-6)


def test_module_continues_at_an_offset_and_grows_its_tables() -> None:
    module = rotary.RotaryEmbedding(4)
    whole = random(2, 7, 3, 2, 4, dtype=torch.float32)
    first, rest = whole[:, :4].clone(), whole[:, 4:].clone()
    module(first)
    assert module._seq_len_cached == 4
    module(rest, seqlen_offset=4)
    assert module._seq_len_cached == 7
    by_tensor = whole[:, 4:].clone()
    module(by_tensor, seqlen_offset=torch.tensor([4, 4]), max_seqlen=7)
    module(whole)
    assert torch.equal(torch.cat((first, rest), dim=1), whole)
    assert torch.equal(by_tensor, rest)


def test_module_keeps_float32_frequencies_when_cast() -> None:
    q32 = random(1, 300, 3, 1, 8, dtype=torch.float32)
    q16 = q32.bfloat16()
    rotary.RotaryEmbedding(8)(q32)
    rotary.RotaryEmbedding(8).bfloat16()(q16)
    assert (q16.float() - q32).abs().max() <= 2.0**-6 * q32.abs().max()
    assert rotary.RotaryEmbedding(8, scale_base=512).state_dict() == {}


def test_what_does_not_fit_is_refused() -> None:
    x, (cos, sin) = random(2, 3, 2, 4), tables(4, 4)
    with pytest.raises(InputError, match="positions 2 to 4 are asked for, but cos and sin have rows 0 to 3"):
        rotary.apply_rotary_emb(x, cos, sin, seqlen_offsets=2)
    with pytest.raises(InputError, match="positions -1 to 3"):
        rotary.apply_rotary_emb(x, cos, sin, seqlen_offsets=torch.tensor([-1, 1]))
    with pytest.raises(InputError, match=r"rotary_dim is 4.*at most the head dim, 2"):
        rotary.apply_rotary_emb(x[..., :2], cos, sin)
    with pytest.raises(InputError, match="one shape"):
        rotary.apply_rotary_emb(x, cos, sin[:3])
    with pytest.raises(InputError, match=r"expected an int or integers \(2,\)"):
        rotary.apply_rotary_emb(x, cos, sin, seqlen_offsets=torch.tensor([1]))
    with pytest.raises(InputError, match="without max_seqlen"):
        rotary.apply_rotary_emb(x[0], cos, sin, cu_seqlens=torch.tensor([0, 3]))
    with pytest.raises(InputError, match=r"expected \(total, nheads, headdim\)"):
        rotary.apply_rotary_emb(x, cos, sin, cu_seqlens=torch.tensor([0, 3]), max_seqlen=3)
    with pytest.raises(InputError, match="num_heads_q is None"):
        rotary.apply_rotary_emb_qkv_(x, cos, sin)
    with pytest.raises(InputError, match="kv has shape"):
        rotary.apply_rotary_emb_kv_(x, cos, sin)
    with pytest.raises(InputError, match="pass max_seqlen"):
        rotary.RotaryEmbedding(4)(x[:, :, None], seqlen_offset=torch.tensor([0, 0]))


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_in_one_graph(inplace: bool, dynamic: bool) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(as_function, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    cos, sin = tables(9, 4, torch.float32)
    for seqlen, offsets in ((3, 1), (5, torch.tensor([2, 0]))):
        x = random(2, seqlen, 2, 6, dtype=torch.bfloat16).requires_grad_()
        arguments = {"cos": cos, "sin": sin, "inplace": inplace, "seqlen_offsets": offsets}
        out, eager = compiled(x, arguments), as_function(x, arguments)
        assert torch.equal(out, eager)
        grads = [torch.autograd.grad(result.float().square().sum(), x)[0] for result in (out, eager)]
        assert torch.equal(*grads)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
@pytest.mark.parametrize("inplace", [False, True])
def test_a_gpu_gives_what_the_cpu_gives(inplace: bool) -> None:
    x, (cos, sin) = random(6, 2, 8, dtype=torch.bfloat16), tables(9, 4, torch.bfloat16)
    packed = {"cu_seqlens": torch.tensor([0, 2, 2, 6], dtype=torch.int32), "seqlen_offsets": torch.tensor([3, 0, 5])}
    by_tensor = {"seqlen_offsets": packed["seqlen_offsets"]}
    for tensors, numbers in ((packed, {"max_seqlen": 4}), (by_tensor, {}), ({}, {"seqlen_offsets": 3})):
        shape = (6, 2, 8) if "cu_seqlens" in tensors else (3, 2, 2, 8)
        both = []
        for device in ("cpu", "cuda"):
            moved = {name: tensor.to(device) for name, tensor in tensors.items()}
            argument = x.clone().reshape(shape).to(device)
            out = rotary.apply_rotary_emb(argument, cos.to(device), sin.to(device), inplace=inplace, **moved, **numbers)
            both.append(out.cpu().float())
        assert (both[0] - both[1]).abs().max() <= 2.0**-7 * both[0].abs().max()
