"""Says what to do where gradients of torch's fused attention are differentiated again, which torch cannot."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from flash_attn_rocm.errors import KernelUnavailableError

# torch's own node for an operation without a derivative; it raises "derivative for aten::... is not implemented".
_NOT_IMPLEMENTED = "torch::autograd::NotImplemented"
# The operations that lie between it and an input of the fused attention: a transposition, a slice of padded head dims.
_LONGEST_CHAIN = 4


def _refuse(gradients: Sequence[Tensor | None]) -> None:
    raise KernelUnavailableError(
        "gradients of attention are differentiated again, and torch's fused attention, which computed them on the SDPA "
        "backend, has no second derivatives. Call the function with return_attn_probs=True: then every step is an "
        "operation that has them, with memory for all scores; so has the CK backend"
    )


def _find_not_implemented(gradient: Tensor) -> None:
    """Put the explanation before torch's error, where this gradient cannot be differentiated."""
    node = gradient.grad_fn
    for _ in range(_LONGEST_CHAIN):
        if node is None:  # create_graph was not given
            return
        if node.name() == _NOT_IMPLEMENTED:
            node.register_prehook(_refuse)
            return
        node = node.next_functions[0][0] if node.next_functions else None


def explain(*inputs: Tensor) -> None:
    """Watch the gradients of these inputs, which must be tensors of this call alone: hooks stay on a tensor.

    torch.compile refuses second derivatives on its own.
    """
    if torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return
    for tensor in inputs:
        if tensor.requires_grad:
            tensor.register_hook(_find_not_implemented)
