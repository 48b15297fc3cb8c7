"""Gradients: through the public functions by autograd, and from the private backward functions, against float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from flash_attn_rocm import (
    flash_attn_func,
    flash_attn_interface,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
)
from flash_attn_rocm.errors import InputError
from tests.api.attention_reference import attention_fp64
from tests.api.features import cumulative

SLOPES = torch.tensor([0.1, 0.2, 0.3, 0.4])
FEATURES: dict[str, dict[str, Any]] = {
    "full": {},
    "causal": {"causal": True},
    "window": {"window_size": (7, 3)},
    "softcap": {"softcap": 3.0, "causal": True},
    "alibi": {"alibi_slopes": SLOPES},
    "scale": {"softmax_scale": 0.2},
}
FEATURE = pytest.mark.parametrize("arguments", FEATURES.values(), ids=FEATURES)
LENGTHS_Q, LENGTHS_K = [0, 5, 20, 33, 7], [3, 5, 12, 40, 0]


@pytest.fixture(autouse=True)
def _on_sdpa(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASH_ATTN_ROCM_BACKEND", "sdpa")


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).half()


def packed(headdim: int = 40, tail: int = 0) -> list[torch.Tensor]:
    """q (Tq, 4, D), k and v (Tk, 2, D) of the sequences, and a tail of NaN."""
    tensors = [normal(sum(LENGTHS_Q) + tail, 4, headdim)]
    tensors += [normal(sum(LENGTHS_K) + tail, 2, headdim, seed=seed) for seed in (1, 2)]
    for tensor in tensors if tail else []:
        tensor[-tail:] = float("nan")
    return tensors


def renamed(arguments: dict[str, Any]) -> dict[str, Any]:
    names = {"window_size": "window", "softmax_scale": "scale", "alibi_slopes": "slopes"}
    return {names.get(key, key): value for key, value in arguments.items()}


def varlen_fp64(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **arguments: Any) -> torch.Tensor:
    """out (sum of LENGTHS_Q, H, D) in float64, sequence by sequence; differentiable."""
    parts = [
        tensor.split([*lengths, tensor.shape[0] - sum(lengths)])
        for tensor, lengths in ((q, LENGTHS_Q), (k, LENGTHS_K), (v, LENGTHS_K))
    ]
    outs = []
    for b in range(len(LENGTHS_Q)):
        out, _ = attention_fp64(*(part[b][None] for part in parts), **renamed(arguments))
        outs.append(out[0])
    return torch.cat(outs)


def exact_gradients(tensors: list[torch.Tensor], grad_out: torch.Tensor, **arguments: Any) -> list[torch.Tensor]:
    doubles = [tensor.double().nan_to_num().requires_grad_() for tensor in tensors]
    return list(torch.autograd.grad(varlen_fp64(*doubles, **arguments), doubles, grad_out.double()))


def close(got: torch.Tensor, exact: torch.Tensor, roundings: float = 3.0) -> None:
    assert torch.isfinite(got).all()
    assert (got.double() - exact).abs().max() <= roundings * 2.0**-11 * exact.abs().max().clamp(min=1.0)


def varlen(tensors: list[torch.Tensor], **arguments: Any) -> Any:
    bounds = cumulative(LENGTHS_Q), cumulative(LENGTHS_K)
    return flash_attn_varlen_func(*tensors, *bounds, max(LENGTHS_Q), max(LENGTHS_K), **arguments)


@FEATURE
@pytest.mark.parametrize("tail", [0, 6])
def test_varlen(arguments: dict[str, Any], tail: int) -> None:
    """Also of sequences without queries or without keys, and with rows after the last sequence."""
    tensors = packed(tail=tail)
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    total = sum(LENGTHS_Q)
    grad_out = normal(total, 4, 40, seed=3)
    got = torch.autograd.grad(varlen(leaves, **arguments)[:total], leaves, grad_out)
    for one, other in zip(got, exact_gradients(tensors, grad_out, **arguments), strict=True):
        close(one, other)
    assert (got[1][:3] == 0).all()  # keys of the sequence without queries
    assert (got[0][-tail - 7 :] == 0).all()  # queries of the sequence without keys, and the tail


def test_varlen_lse_is_differentiable_too() -> None:
    tensors = packed()
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    _, lse, _ = varlen(leaves, return_attn_probs=True)
    seen = ~torch.isneginf(lse)
    assert (~seen).sum() == 4 * 7
    got = torch.autograd.grad(lse[seen].sum(), leaves[:2])
    assert all(torch.isfinite(one).all() for one in got)
    assert got[0].abs().max() > 0


def test_varlen_without_any_key_has_zero_gradients() -> None:
    q, k, v = (tensor.requires_grad_() for tensor in packed())
    empty = cumulative([0] * 5)
    out = flash_attn_varlen_func(q, k, v, cumulative(LENGTHS_Q), empty, 33, 0)
    assert (out == 0).all()
    assert all((one == 0).all() for one in torch.autograd.grad(out.sum(), [q, k, v]))


def private_backward(
    tensors: list[torch.Tensor],
    grad_out: torch.Tensor,
    forward: tuple[torch.Tensor, ...],
    arguments: dict[str, Any],
    dropout_p: float = 0.0,
    rng_state: torch.Tensor | None = None,
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Gradients from _flash_attn_backward or _flash_attn_varlen_backward (3 dimensions), and softmax_d."""
    gradients = [torch.full_like(tensor, float("nan")) for tensor in tensors]
    left, right = arguments.get("window_size", (-1, -1))
    scale = arguments.get("softmax_scale", tensors[0].shape[-1] ** -0.5)
    rest = (
        dropout_p,
        scale,
        arguments.get("causal", False),
        left,
        right,
        arguments.get("softcap", 0.0),
        arguments.get("alibi_slopes"),
        False,
        rng_state,
    )
    leading = (grad_out, *tensors, *forward[:2], *gradients)
    if tensors[0].dim() == 4:
        softmax_d = flash_attn_interface._flash_attn_backward(*leading, *rest)
    else:
        bounds = (cumulative(LENGTHS_Q), cumulative(LENGTHS_K), max(LENGTHS_Q), max(LENGTHS_K))
        softmax_d = flash_attn_interface._flash_attn_varlen_backward(*leading, *bounds, *rest)
    return gradients, softmax_d


@FEATURE
@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(30, 30), (40, 25), (25, 40)])
def test_private_backward(arguments: dict[str, Any], seqlen_q: int, seqlen_k: int) -> None:
    tensors = [normal(2, seqlen_q, 4, 40), normal(2, seqlen_k, 2, 40, seed=1), normal(2, seqlen_k, 2, 40, seed=2)]
    grad_out = normal(2, seqlen_q, 4, 40, seed=3)
    out, lse, _ = flash_attn_func(*tensors, return_attn_probs=True, **arguments)
    got, softmax_d = private_backward(tensors, grad_out, (out, lse), arguments)
    doubles = [tensor.double().requires_grad_() for tensor in tensors]
    exact_out, _ = attention_fp64(*doubles, **renamed(arguments))
    exact = torch.autograd.grad(exact_out, doubles, grad_out.double())
    for one, other in zip(got, exact, strict=True):
        close(one, other)
    expected_d = (grad_out.double() * exact_out).sum(-1).transpose(1, 2)
    assert softmax_d.dtype == torch.float32
    assert (softmax_d.double() - expected_d).abs().max() <= 40 * 2.0**-11


@FEATURE
def test_private_varlen_backward(arguments: dict[str, Any]) -> None:
    tensors = packed()
    grad_out = normal(sum(LENGTHS_Q), 4, 40, seed=3)
    out, lse, _ = varlen(tensors, return_attn_probs=True, **arguments)
    got, softmax_d = private_backward(tensors, grad_out, (out, lse), arguments)
    for one, other in zip(got, exact_gradients(tensors, grad_out, **arguments), strict=True):
        close(one, other)
    assert softmax_d.shape == lse.shape


def test_private_backward_of_part_of_the_keys_uses_the_given_lse() -> None:
    """Ring attention: each rank has some keys, with out and log-sum-exp of all of them; the parts add up."""
    q, k, v, grad_out = (normal(1, 20, 2, 32, seed=seed) for seed in range(4))
    out, lse, _ = flash_attn_func(q, k, v, return_attn_probs=True)
    whole, _ = private_backward([q, k, v], grad_out, (out, lse), {})
    halves = [
        private_backward([q, k[:, part], v[:, part]], grad_out, (out, lse), {})[0]
        for part in (slice(0, 11), slice(11, 20))
    ]
    torch.testing.assert_close(halves[0][0] + halves[1][0], whole[0], atol=2e-3, rtol=0)
    for i in (1, 2):
        torch.testing.assert_close(torch.cat([half[i] for half in halves], dim=1), whole[i], atol=2e-3, rtol=0)


@pytest.mark.parametrize("kind", ["fixed", "varlen"])
def test_private_backward_drops_the_weights_that_the_forward_pass_dropped(kind: str) -> None:
    """With one-hot values, out is the dropped weights themselves; its gradient must have the same zeros."""
    torch.manual_seed(0)
    if kind == "fixed":
        q, k = normal(2, 9, 2, 32), normal(2, 32, 2, 32, seed=1)
        v = torch.eye(32).half()[None, :, None].expand(2, 32, 2, 32)
        forward = flash_attn_interface._flash_attn_forward(q, k, v, 0.4, 0.2, False, -1, -1, 0.0, None, True)
        out, lse, random_map, rng_state = forward
        got, _ = private_backward([q, k, v], torch.ones_like(out), (out, lse), {"softmax_scale": 0.2}, 0.4, rng_state)
        kept = random_map.transpose(1, 2) <= 153  # floor(255 * 0.6)
        assert torch.equal(out != 0, kept)
        weights = torch.softmax(torch.einsum("bqhd,bkhd->bhqk", q.double(), k.double()) * 0.2, -1)
        expected = (weights * (random_map <= 153) / 0.6).sum(2).transpose(1, 2)
        assert (got[2].double() - expected[..., None]).abs().max() < 5e-3
        return
    tensors = packed(32)
    bounds = (cumulative(LENGTHS_Q), cumulative(LENGTHS_K), max(LENGTHS_Q), max(LENGTHS_K))
    out, lse, random_map, rng_state = flash_attn_interface._flash_attn_varlen_forward(
        *tensors, *bounds, 0.4, 0.2, False, return_softmax=True
    )
    got, _ = private_backward(tensors, torch.ones_like(out), (out, lse), {"softmax_scale": 0.2}, 0.4, rng_state)
    q, k = (tensor.double() for tensor in tensors[:2])
    start_q, start_k = 25, 20  # the sequence with 33 queries and 40 keys
    keys = k[start_k : start_k + 40].repeat_interleave(2, dim=1)
    weights = torch.softmax(torch.einsum("qhd,khd->hqk", q[start_q : start_q + 33], keys) * 0.2, -1)
    kept = random_map[:, start_q : start_q + 33, :40] <= 153
    expected = (weights * kept / 0.6).sum(1).unflatten(0, (2, 2)).sum(1).T
    assert (got[2][start_k : start_k + 40].double() - expected[..., None]).abs().max() < 2e-2


def test_private_backward_without_its_random_state_is_refused() -> None:
    q = normal(1, 5, 2, 32)
    forward = flash_attn_interface._flash_attn_forward(q, q, q, 0.5, 0.2, False, -1, -1, 0.0, None, False)
    with pytest.raises(InputError, match=r"rng_state is None with dropout_p 0.5"):
        private_backward([q, q, q], q, forward, {}, 0.5)
    with pytest.raises(InputError, match=r"rng_state is torch.int64 \(3,\); expected torch.int64 \(2,\)"):
        private_backward([q, q, q], q, forward, {}, 0.5, torch.zeros(3, dtype=torch.int64))


def test_private_forward_returns_what_the_public_one_does() -> None:
    q, k, v = (normal(2, 9, 2, 32, seed=seed) for seed in range(3))
    out, lse, random_map, rng_state = flash_attn_interface._flash_attn_forward(
        q, k, v, 0.0, 0.2, True, -1, -1, 0.0, None, True
    )
    expected, expected_lse, _ = flash_attn_func(q, k, v, softmax_scale=0.2, causal=True, return_attn_probs=True)
    assert torch.equal(out, expected)
    assert torch.equal(lse, expected_lse)
    assert random_map.numel() == 0
    assert rng_state.tolist() == [0, 0]


def test_zero_tensors_zeroes_the_rows_of_no_sequence() -> None:
    tensors = packed(32, tail=4)
    bounds = (cumulative(LENGTHS_Q), cumulative(LENGTHS_K), max(LENGTHS_Q), max(LENGTHS_K))
    out, lse, *_ = flash_attn_interface._flash_attn_varlen_forward(
        *tensors, *bounds, 0.0, 0.2, False, zero_tensors=True
    )
    assert (out[-4:] == 0).all()
    assert torch.isneginf(lse[:, -4:]).all()


def test_packed_forms_are_their_parts() -> None:
    qkv = normal(2, 12, 3, 4, 32).requires_grad_()
    q, k, v = qkv.unbind(2)
    expected = flash_attn_func(q, k, v, causal=True)
    results = [
        flash_attn_qkvpacked_func(qkv, causal=True),
        flash_attn_kvpacked_func(q, qkv[:, :, 1:], causal=True),
        flash_attn_interface.FlashAttnQKVPackedFunc.apply(
            qkv, 0.0, None, True, (-1, -1), 0.0, None, False, False, True
        ),
    ]
    (grad,) = torch.autograd.grad(expected.float().sum(), qkv)
    for result in results:
        assert torch.equal(result, expected)
        assert torch.equal(torch.autograd.grad(result.float().sum(), qkv)[0], grad)


def test_packed_varlen_forms_are_their_parts() -> None:
    lengths = [5, 0, 19]
    qkv, bounds = normal(24, 3, 4, 32).requires_grad_(), cumulative(lengths)
    q, k, v = qkv.unbind(1)
    expected = flash_attn_varlen_func(q, k, v, bounds, bounds, 19, 19, causal=True)
    results = [
        flash_attn_varlen_qkvpacked_func(qkv, bounds, 19, causal=True),
        flash_attn_varlen_kvpacked_func(q, qkv[:, 1:], bounds, bounds, 19, 19, causal=True),
        flash_attn_interface.FlashAttnVarlenFunc.apply(
            q, k, v, bounds, bounds, 19, 19, 0.0, None, True, (-1, -1), 0.0, None, False, False, None, True
        ),
    ]
    (grad,) = torch.autograd.grad(expected.float().sum(), qkv)
    for result in results:
        assert torch.equal(result, expected)
        assert torch.equal(torch.autograd.grad(result.float().sum(), qkv)[0], grad)


def test_apply_without_gradients_records_none() -> None:
    q = normal(1, 5, 2, 32).requires_grad_()
    call = (q, q, q, 0.0, None, False, (-1, -1), 0.0, None, False, False)
    assert flash_attn_interface.FlashAttnFunc.apply(*call, True).requires_grad
    assert not flash_attn_interface.FlashAttnFunc.apply(*call, False).requires_grad


def test_helpers() -> None:
    x = torch.zeros(4, 6)
    assert flash_attn_interface.maybe_contiguous(x) is x
    assert flash_attn_interface.maybe_contiguous(None) is None
    assert flash_attn_interface.maybe_contiguous(x.T).is_contiguous()
    assert [flash_attn_interface.round_multiple(n, 32) for n in (0, 1, 32, 33)] == [0, 32, 32, 64]
