"""Training through the public functions with CK's backward kernels: which run, and that their gradients are right."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.kernels.backward_reference import check_gradients
from tests.kernels.feature_reference import Features
from tests.kernels.test_coverage import launched_by


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(torch.bfloat16)


def inputs(device: str, hdim: int = 64) -> tuple[list[Tensor], Tensor]:
    """q (1, 70, 4, hdim), k and v (1, 50, 2, hdim), which require gradients, and a gradient of the output."""
    q, k, v = normal(1, 70, 4, hdim), normal(1, 50, 2, hdim, seed=1), normal(1, 50, 2, hdim, seed=2)
    return [t.to(device).requires_grad_() for t in (q, k, v)], normal(1, 70, 4, hdim, seed=3).to(device)


def gradients(tensors: list[Tensor], dout: Tensor, **options: object) -> tuple[Tensor, ...]:
    from flash_attn_rocm import flash_attn_func

    return torch.autograd.grad(flash_attn_func(*tensors, **options), tensors, dout)


@pytest.mark.parametrize("hdim", [64, 100, 150, 256], ids=["exact", "not a multiple of 8", "wide", "widest"])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_autograd_runs_the_backward_kernels(kernel_device: str, causal: bool, hdim: int) -> None:
    tensors, dout = inputs(kernel_device, hdim)
    grads: list[Tensor] = []
    names = launched_by(lambda: grads.extend(gradients(tensors, dout, causal=causal)))
    assert any(name.startswith("fmha_bwd_") for name in names), names
    check_gradients(
        tuple(grad[0] for grad in grads),
        tuple(tensor[0].detach() for tensor in tensors),
        dout[0].cpu(),
        Features(causal=causal),
        "flash_attn_func",
    )


def test_kernels_are_looked_for_once_a_backward(kernel_device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from flash_attn_rocm.backends import ck_backward

    covers = Mock(wraps=ck_backward.covers)
    monkeypatch.setattr(ck_backward, "covers", covers)
    gradients(*inputs(kernel_device))
    covers.assert_called_once()


def test_deterministic_runs_kernels_that_add_in_order(kernel_device: str) -> None:
    tensors, dout = inputs(kernel_device)
    runs: list[tuple[Tensor, ...]] = []
    names = launched_by(lambda: runs.append(gradients(tensors, dout, deterministic=True)))
    assert any(name.startswith("fmha_bwd_") and "_deterministic_" in name for name in names), names
    runs.append(gradients(tensors, dout, deterministic=True))
    for one, other in zip(*runs, strict=True):
        assert torch.equal(one, other)


def test_torch_can_ask_for_deterministic_gradients(kernel_device: str) -> None:
    tensors, dout = inputs(kernel_device)
    torch.use_deterministic_algorithms(True)
    try:
        names = launched_by(lambda: gradients(tensors, dout))
    finally:
        torch.use_deterministic_algorithms(False)
    assert any(name.startswith("fmha_bwd_") and "_deterministic_" in name for name in names), names


OPTIONS: list[dict[str, object]] = [
    {"causal": True},
    {"window_size": (20, 7)},
    {"dropout_p": 0.3},
    {"alibi": True},
    {"softcap": 3.0},
]
CALLS = [(varlen, options) for varlen in (False, True) for options in OPTIONS]
CALLS += [(False, {"dropout_p": 0.3, "alibi": True, "causal": True})]


@pytest.mark.parametrize(("varlen", "options"), CALLS, ids=str)
def test_deterministic_gradients_have_the_same_bits_twice(
    kernel_device: str, varlen: bool, options: dict[str, object]
) -> None:
    """Whatever they come from: kernels that add in order, or torch operations where this build has none."""
    from flash_attn_rocm import flash_attn_func, flash_attn_varlen_func

    tensors, dout = inputs(kernel_device)
    given = {**options, "deterministic": True}
    if given.pop("alibi", False):
        given["alibi_slopes"] = torch.tensor([0.1, 0.2, 0.3, 0.4], device=kernel_device)
    starts = [torch.tensor(table, dtype=torch.int32, device=kernel_device) for table in ([0, 20, 70], [0, 30, 50])]
    rows = [tensor[0].detach().requires_grad_() for tensor in tensors]

    def run() -> tuple[Tensor, ...]:
        torch.manual_seed(5)
        if varlen:
            return torch.autograd.grad(flash_attn_varlen_func(*rows, *starts, 50, 30, **given), rows, dout[0])
        return torch.autograd.grad(flash_attn_func(*tensors, **given), tensors, dout)

    for one, other in zip(run(), run(), strict=True):
        assert torch.equal(one, other)


def test_varlen_runs_the_backward_kernels(kernel_device: str) -> None:
    from flash_attn_rocm import flash_attn_varlen_func

    (q, k, v), dout = inputs(kernel_device)
    starts_q = torch.tensor([0, 20, 20, 70], dtype=torch.int32, device=kernel_device)
    starts_k = torch.tensor([0, 30, 45, 50], dtype=torch.int32, device=kernel_device)
    leaves = [t[0].detach().requires_grad_() for t in (q, k, v)]
    grads: list[Tensor] = []

    def run() -> None:
        out = flash_attn_varlen_func(*leaves, starts_q, starts_k, 50, 30, causal=True)
        grads.extend(torch.autograd.grad(out, leaves, dout[0]))

    assert any(name.startswith("fmha_bwd_") and "_group_" in name for name in launched_by(run))
    for b in range(3):
        rows, keys = slice(starts_q[b], starts_q[b + 1]), slice(starts_k[b], starts_k[b + 1])
        check_gradients(
            (grads[0][rows], grads[1][keys], grads[2][keys]),
            (leaves[0][rows].detach(), leaves[1][keys].detach(), leaves[2][keys].detach()),
            dout[0][rows].cpu(),
            Features(causal=True),
            f"sequence {b}",
        )


@pytest.mark.parametrize(
    "options",
    [
        {"causal": True},
        {"softcap": 3.0},
        {"dropout_p": 0.3, "alibi": True},
    ],
    ids=["causal", "softcap", "dropout and ALiBi"],
)
def test_forward_by_ck_with_backward_by_torch(
    kernel_device: str, monkeypatch: pytest.MonkeyPatch, options: dict[str, object]
) -> None:
    """The policy's other choice: the same out, LSE and random numbers give the same gradients to rounding."""
    from flash_attn_rocm import backends

    tensors, dout = inputs(kernel_device)
    alibi = torch.tensor([0.1, 0.2, 0.3, 0.4], device=kernel_device) if options.pop("alibi", False) else None

    def run() -> tuple[Tensor, ...]:
        torch.manual_seed(5)
        return gradients(tensors, dout, alibi_slopes=alibi, **options)

    by_kernels = run()
    monkeypatch.setattr(backends, "backward_kernels", lambda device_type, device_index: None)
    by_torch: list[Tensor] = []
    names = launched_by(lambda: by_torch.extend(run()))
    assert names
    assert not any(name.startswith("fmha_bwd_") for name in names), names
    for ours, theirs in zip(by_kernels, by_torch, strict=True):
        torch.testing.assert_close(ours, theirs, atol=0.03, rtol=0.03)


class Block(nn.Module):
    """Attention and a linear layer, with residuals: as little of a transformer as trains."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out, self.mlp = nn.Linear(64, 192), nn.Linear(64, 64), nn.Linear(64, 64)
        self.norm = nn.LayerNorm(64)

    def forward(self, x: Tensor) -> Tensor:
        from flash_attn_rocm import flash_attn_qkvpacked_func

        qkv = self.qkv(self.norm(x)).unflatten(-1, (3, 1, 64))
        x = x + self.out(flash_attn_qkvpacked_func(qkv, causal=True).flatten(-2))
        return x + F.gelu(self.mlp(x))


def loss_curve(device: str, steps: int) -> list[float]:
    """Losses of a 2-layer model that learns to repeat the token before the last one."""
    torch.manual_seed(0)
    embed, head = nn.Embedding(16, 64), nn.Linear(64, 16)
    model = nn.Sequential(embed, Block(), Block(), head).to(device, torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tokens = torch.randint(0, 16, (2, 40), generator=torch.Generator().manual_seed(1)).to(device)
    losses = []
    for _ in range(steps):
        logits = model(tokens)[:, 1:].float()
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, :-1].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_a_small_transformer_learns_as_with_sdpa(kernel_device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = loss_curve(kernel_device, 30)
    monkeypatch.setenv("FLASH_ATTN_ROCM_BACKEND", "sdpa")
    theirs = loss_curve(kernel_device, 30)
    assert ours[-1] < 0.7 * ours[0]
    for step, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        assert abs(one - other) <= 0.02 * other + 0.02, f"step {step}: {one} and {other}"
