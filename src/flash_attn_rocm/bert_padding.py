"""Between padded batches (batch, seqlen, ...) and the packed tokens (total, ...) that the varlen functions take.

Names, arguments and return values of flash_attn.bert_padding. Everything is differentiable with respect to the values.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from flash_attn_rocm.errors import InputError


class IndexFirstAxis(torch.autograd.Function):  # type: ignore[misc]  # mypy does not look into torch
    """Rows of a tensor; see `index_first_axis`."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, indices: Tensor) -> Tensor:
        """(n, ...) and integer (m,) to (m, ...)."""
        ctx.save_for_backward(indices)
        ctx.rows = input.shape[0]
        return input.index_select(0, indices)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """Rows that were taken several times sum their gradients."""
        (indices,) = ctx.saved_tensors
        return grad.new_zeros((ctx.rows, *grad.shape[1:])).index_add(0, indices, grad), None


class IndexPutFirstAxis(torch.autograd.Function):  # type: ignore[misc]  # mypy does not look into torch
    """Rows put into a tensor of zeros; see `index_put_first_axis`."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, indices: Tensor, first_axis_dim: int) -> Tensor:
        """(m, ...) and integer (m,) to (first_axis_dim, ...)."""
        ctx.save_for_backward(indices)
        return values.new_zeros((first_axis_dim, *values.shape[1:])).index_copy(0, indices.long(), values)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        """Each row's own gradient."""
        (indices,) = ctx.saved_tensors
        return grad.index_select(0, indices), None, None


class IndexFirstAxisResidual(torch.autograd.Function):  # type: ignore[misc]  # mypy does not look into torch
    """Rows of a tensor and the tensor itself; see `index_first_axis_residual`."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
        """(n, ...) and integer (m,) to (m, ...) and (n, ...), which shares the input's memory."""
        ctx.save_for_backward(indices)
        return input.index_select(0, indices), input.detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor, grad_residual: Tensor) -> tuple[Tensor, None]:
        """The sum of what arrives on both ways."""
        (indices,) = ctx.saved_tensors
        return grad_residual.index_add(0, indices, grad), None


def index_first_axis(input: Tensor, indices: Tensor) -> Tensor:
    """`input[indices]`: rows of (n, ...) by integer (m,), as (m, ...)."""
    result: Tensor = IndexFirstAxis.apply(input, indices)
    return result


def index_put_first_axis(values: Tensor, indices: Tensor, first_axis_dim: int) -> Tensor:
    """Zeros (first_axis_dim, ...) with the rows of values (m, ...) at the indices (m,), which name no row twice."""
    result: Tensor = IndexPutFirstAxis.apply(values, indices, first_axis_dim)
    return result


def index_first_axis_residual(input: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """`index_first_axis`, and the whole input (detached) for a residual connection; gradients of both are summed."""
    result: tuple[Tensor, Tensor] = IndexFirstAxisResidual.apply(input, indices)
    return result


def _check_mask(name: str, mask: Tensor, hidden_states: Tensor) -> None:
    if hidden_states.dim() < 2 or mask.shape != hidden_states.shape[:2]:
        raise InputError(
            f"{name} has shape {tuple(mask.shape)} and hidden_states {tuple(hidden_states.shape)}; "
            "expected (batch, seqlen) and (batch, seqlen, ...)"
        )


def _cumulative(seqlens: Tensor) -> tuple[Tensor, int]:
    """int32 (n + 1,) where each sequence starts and the last ends, and the longest length; copies that to the host."""
    longest = int(seqlens.max().item()) if seqlens.shape[0] else 0
    return F.pad(torch.cumsum(seqlens, dim=0, dtype=torch.int32), (1, 0)), longest


def _check_lengths(lengths: Tensor, filled: Tensor) -> None:
    """Values, which waits for a GPU as the longest length does; lengths of tokens that are not there read beyond k."""
    if lengths.numel() == 0:
        return
    least, most = torch.stack((lengths.min().long(), filled.max().long())).tolist()
    if least < 0 or most > lengths.shape[1]:
        raise InputError(
            f"attention_mask_in_length has lengths from {least}, and rows that sum to up to {most}; "
            f"allowed: from 0, and up to seqlen, {lengths.shape[1]}"
        )


def unpad_input(
    hidden_states: Tensor, attention_mask: Tensor, unused_mask: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, int, Tensor]:
    """Pack the tokens of a padded batch.

    Args:
        hidden_states: (batch, seqlen, ...).
        attention_mask: (batch, seqlen), bool or integer; not 0 where there is a token.
        unused_mask: like it; not 0 where memory is allocated for a token that is not used. Those are
            packed too, but not counted in seqused.

    Returns:
        The packed tokens (total, ...); their indices in the flattened batch, int64 (total,); cu_seqlens, int32
        (batch + 1,); the longest length, an int; seqused, the used tokens of each sequence, int32 (batch,).

    Raises:
        InputError: a mask does not have the batch's shape.
    """
    _check_mask("attention_mask", attention_mask, hidden_states)
    # Lengths and indices must come from the same booleans: sums of other masks would name tokens that are not there.
    used = attention_mask != 0
    allocated = used
    if unused_mask is not None:
        _check_mask("unused_mask", unused_mask, hidden_states)
        allocated = used | (unused_mask != 0)
    seqused = used.sum(dim=1, dtype=torch.int32)
    indices = torch.nonzero(allocated.flatten()).flatten()
    cu_seqlens, longest = _cumulative(allocated.sum(dim=1, dtype=torch.int32))
    return index_first_axis(hidden_states.flatten(0, 1), indices), indices, cu_seqlens, longest, seqused


def unpad_input_for_concatenated_sequences(
    hidden_states: Tensor, attention_mask_in_length: Tensor
) -> tuple[Tensor, Tensor, Tensor, int]:
    """Pack a padded batch whose rows hold several sequences each, one after the other, and padding at the end.

    Args:
        hidden_states: (batch, seqlen, ...).
        attention_mask_in_length: integer (batch, seqlen); each row begins with the lengths of its sequences, the rest
            is 0. [2, 3, 0, 0, 0, 0] is a sequence of two tokens, one of three, and one position of padding.

    Returns:
        The packed tokens (total, ...); their indices in the flattened batch, int64 (total,); cu_seqlens of all
        sequences, int32 (sequences + 1,); the longest length, an int.

    Raises:
        InputError: the lengths do not have the batch's shape, are negative, or sum to more than seqlen in a row.
    """
    _check_mask("attention_mask_in_length", attention_mask_in_length, hidden_states)
    filled = attention_mask_in_length.sum(dim=1)
    _check_lengths(attention_mask_in_length, filled)
    positions = torch.arange(hidden_states.shape[1], device=filled.device)
    indices = torch.nonzero((positions < filled[:, None]).flatten()).flatten()
    lengths = attention_mask_in_length.flatten()
    cu_seqlens, longest = _cumulative(lengths[torch.nonzero(lengths).flatten()])
    return index_first_axis(hidden_states.flatten(0, 1), indices), indices, cu_seqlens, longest


def pad_input(hidden_states: Tensor, indices: Tensor, batch: int, seqlen: int) -> Tensor:
    """Undo `unpad_input`: packed tokens (total, ...) to (batch, seqlen, ...), zeros where there is no token."""
    return index_put_first_axis(hidden_states, indices, batch * seqlen).unflatten(0, (batch, seqlen))
