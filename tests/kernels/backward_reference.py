"""Gradients of attention by torch's autograd through the definitions, and the bound that kernels are held to."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.api.attention_reference import visible_keys
from tests.kernels.feature_reference import Features, attend

FACTOR = 3  # upstream's tests allow 10 times torch's error in the same dtype
EPSILON = 1e-5
# Backward is given out rounded to its dtype, which torch's own backward does not use. Where no query sees many keys,
# torch is exact or nearly so, and that rounding alone remains: so many steps of the dtype are then allowed.
FEW_KEYS = 16
FEW_KEYS_STEPS = 16


def gradients(dtype: torch.dtype, tensors: tuple[Tensor, ...], dout: Tensor, features: Features) -> tuple[Tensor, ...]:
    """dq, dk, dv of one sequence: q (Sq, H, D), k and v (Sk, Hk, D), dout like q; every step in `dtype`."""
    leaves = [tensor.to(dtype).requires_grad_() for tensor in tensors]
    out, _ = attend(dtype, *leaves, features)
    if not out.requires_grad:  # no queries or no keys
        return tuple(torch.zeros_like(leaf) for leaf in leaves)
    return torch.autograd.grad(out, leaves, dout.to(dtype))


def check_gradients(
    got: tuple[Tensor, ...],
    tensors: tuple[Tensor, ...],
    dout: Tensor,
    features: Features,
    what: str,
    *,
    drawn: bool = False,
) -> float:
    """Fail unless each gradient is within FACTOR times the error of the same computation in its own dtype.

    `drawn`: allow for the rounding of out where no query sees FEW_KEYS keys.

    Returns the largest ratio of error to torch's error.
    """
    expected = gradients(torch.float64, tensors, dout, features)
    same_dtype = gradients(tensors[0].dtype, tensors, dout, features)
    keep = visible_keys(tensors[0].shape[0], tensors[1].shape[0], features.causal, features.window)
    few = drawn and keep.numel() > 0 and int(keep.sum(1).max()) < FEW_KEYS
    floor = FEW_KEYS_STEPS * torch.finfo(tensors[0].dtype).eps if few else EPSILON
    worst = 0.0
    for name, ours, right, theirs in zip(("dq", "dk", "dv"), got, expected, same_dtype, strict=True):
        assert ours.shape == right.shape, (what, name)
        if not right.numel():
            continue
        torch_error = (theirs.double() - right).abs().max().item()
        error = (ours.cpu().double() - right).abs().max().item()
        assert error <= FACTOR * torch_error + floor, f"{what} {name}: error {error:.3g}, torch's {torch_error:.3g}"
        if torch_error > EPSILON:
            worst = max(worst, error / torch_error)
        # Queries that see no key, and keys that no query sees: exactly 0.
        unseen = ~keep.any(1 if name == "dq" else 0)
        assert (ours.cpu()[unseen] == 0).all(), f"{what} {name}: not 0 where no gradient flows"
    return worst
