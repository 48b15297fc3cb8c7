"""Derivatives beyond one backward pass: right, or refused; never silently without some of their terms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad

from flash_attn_rocm import flash_attn_func, flash_attn_varlen_func
from flash_attn_rocm.errors import KernelUnavailableError
from tests.api.attention_reference import attention_fp64

GENERATOR = torch.Generator().manual_seed(5)
Q, K, V, W = (torch.randn(1, 7, 2, 64, generator=GENERATOR).half() for _ in range(4))


def loss(q: torch.Tensor) -> torch.Tensor:
    out = flash_attn_func(q, K.to(q.device), V.to(q.device))
    assert isinstance(out, torch.Tensor)
    return out.float().sum()


def dual(q: torch.Tensor) -> object:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(loss(forward_ad.make_dual(q, torch.ones_like(q)))).tangent


REFUSED: dict[str, Callable[[torch.Tensor], object]] = {
    "jvp": lambda q: torch.func.jvp(loss, (q,), (q,)),
    "dual numbers": dual,
    "grad": torch.func.grad(loss),
    "vjp": lambda q: torch.func.vjp(loss, q),
    "jacrev": torch.func.jacrev(loss),
    "jacfwd": torch.func.jacfwd(loss),
    "vmap of grad": lambda q: torch.func.vmap(torch.func.grad(loss))(torch.stack([q, q])),
    "grad of vmap": lambda q: torch.func.grad(lambda x: torch.func.vmap(loss)(x).sum())(torch.stack([q, q])),
}


@pytest.mark.parametrize("name", REFUSED)
def test_transforms_that_the_op_cannot_follow_are_refused(kernel_device: str, name: str) -> None:
    with pytest.raises(KernelUnavailableError, match=r"torch.func.grad, vjp, jacrev and jvp.*BACKEND=sdpa"):
        REFUSED[name](Q.to(kernel_device))


@pytest.mark.parametrize("name", ["jvp", "grad"])
def test_compiled_transforms_are_refused(kernel_device: str, name: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda q: REFUSED[name](q), fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match="forward-mode AD" if name == "jvp" else "functorch"):
        compiled(Q.to(kernel_device))


def test_a_call_beside_a_transform_is_none_of_its_business(kernel_device: str) -> None:
    """Tensors that no transform wraps are computed as ever, inside one too."""
    q = Q.to(kernel_device)
    expected = flash_attn_func(q, q, q)
    inside: list[object] = []
    torch.func.grad(lambda x: (inside.append(flash_attn_func(q, q, q)), x.sum())[1])(torch.ones(3))
    assert isinstance(inside[0], torch.Tensor)
    assert torch.equal(inside[0], expected)


def test_vmap_gives_the_results_of_single_calls(kernel_device: str) -> None:
    batch = torch.stack([Q, W]).to(kernel_device)
    mapped = torch.func.vmap(lambda q: flash_attn_func(q, q, q))(batch)
    for one, q in zip(mapped, batch, strict=True):
        assert torch.equal(one, flash_attn_func(q, q, q))


def test_the_forward_mode_that_the_error_recommends_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASH_ATTN_ROCM_BACKEND", "sdpa")
    _, tangent = torch.func.jvp(lambda q: flash_attn_func(q, K, V, return_attn_probs=True)[0], (Q,), (W,))
    _, exact = torch.func.jvp(lambda q: attention_fp64(q, K.double(), V.double())[0], (Q.double(),), (W.double(),))
    assert (tangent.double() - exact).abs().max() <= 2.0**-9 * exact.abs().max()


def second_order(function: Callable[..., torch.Tensor], tensors: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Gradients of a gradient penalty: through the tensors and through what the first backward pass was given."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    out = function(*leaves[:3])
    first = torch.autograd.grad((out * leaves[3]).sum(), leaves[:3], create_graph=True)
    return torch.autograd.grad(sum(part.pow(2).sum() for part in first), leaves)


@pytest.mark.parametrize("arguments", [{}, {"causal": True}], ids=["full", "causal"])
def test_second_derivatives_are_those_of_fp64(kernel_device: str, arguments: dict[str, bool]) -> None:
    got = second_order(lambda *t: flash_attn_func(*t, **arguments), [t.to(kernel_device) for t in (Q, K, V, W)])
    exact = second_order(lambda *t: attention_fp64(*t, **arguments)[0], [t.double() for t in (Q, K, V, W)])
    for one, other in zip(got, exact, strict=True):
        assert other.abs().max() > 0
        assert (one.cpu().double() - other).abs().max() <= 2.0**-7 * other.abs().max()


def as_varlen(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **arguments: Any) -> Any:
    """flash_attn_varlen_func of the same batch."""
    starts = [torch.arange(0, x.shape[0] * x.shape[1] + 1, x.shape[1], dtype=torch.int32) for x in (q, k)]
    rows = [x.flatten(0, 1) for x in (q, k, v)]
    return flash_attn_varlen_func(*rows, *(x.to(q.device) for x in starts), q.shape[1], k.shape[1], **arguments)


@pytest.mark.parametrize("function", [flash_attn_func, as_varlen], ids=["fixed", "varlen"])
@pytest.mark.parametrize("grouped", [False, True], ids=["heads", "grouped heads"])
def test_torchs_fused_attention_says_what_has_second_derivatives(
    function: Callable[..., Any], grouped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And that has them."""
    monkeypatch.setenv("FLASH_ATTN_ROCM_BACKEND", "sdpa")
    heads = 1 if grouped else K.shape[2]
    tensors = [Q, K[:, :, :heads], V[:, :, :heads], W]
    message = "differentiated again, and torch's fused .*SDPA.* return_attn_probs=True"
    with pytest.raises(KernelUnavailableError, match=message):
        second_order(lambda *t: function(*t, causal=True).reshape(W.shape), tensors)
    got = second_order(lambda *t: function(*t, causal=True, return_attn_probs=True)[0].reshape(W.shape), tensors)
    exact = second_order(lambda *t: attention_fp64(*t, causal=True)[0], [t.double() for t in tensors])
    for one, other in zip(got, exact, strict=True):
        assert (one.double() - other).abs().max() <= 2.0**-7 * other.abs().max()
    leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors[:3]]  # which no one differentiates again
    first = torch.autograd.grad(function(*leaves, causal=True).sum(), leaves, create_graph=True)
    assert all(bool(torch.isfinite(gradient).all()) for gradient in first)


def test_second_derivatives_of_varlen_kernels(kernel_device: str) -> None:
    got = second_order(lambda *t: as_varlen(*t).reshape(W.shape), [t.to(kernel_device) for t in (Q, K, V, W)])
    exact = second_order(lambda *t: attention_fp64(*t)[0], [t.double() for t in (Q, K, V, W)])
    for one, other in zip(got, exact, strict=True):
        assert (one.cpu().double() - other).abs().max() <= 2.0**-7 * other.abs().max()
