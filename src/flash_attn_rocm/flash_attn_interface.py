"""Names of flash_attn.flash_attn_interface that other libraries import: forward and backward passes on their own.

Signatures, defaults and return values are those of flash_attn 2.8. Gradients come from out and softmax_lse as given: by
CK's backward kernels where one covers the call, else (softcap; see ck_backward.covers) by torch operations in float32,
which take memory for the scores, (batch, nheads, seqlen_q, seqlen_k). What the kernels take is said in ck_backward.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from flash_attn_rocm import calls
from flash_attn_rocm.checks import check_buffer, check_inputs
from flash_attn_rocm.checks_sequences import check_varlen_inputs
from flash_attn_rocm.errors import InputError
from flash_attn_rocm.gradients import Call, first_order
from flash_attn_rocm.interface import (
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
    flash_attn_with_kvcache,
)

__all__ = [
    "FlashAttnFunc",
    "FlashAttnKVPackedFunc",
    "FlashAttnQKVPackedFunc",
    "FlashAttnVarlenFunc",
    "FlashAttnVarlenKVPackedFunc",
    "FlashAttnVarlenQKVPackedFunc",
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
    "maybe_contiguous",
    "round_multiple",
]

ForwardResult = tuple[Tensor, Tensor, Tensor, Tensor]


def maybe_contiguous(x: Tensor | None) -> Tensor | None:
    """x, or a contiguous copy where its last dimension is not contiguous in memory."""
    return x.contiguous() if x is not None and x.stride(-1) != 1 else x


def round_multiple(x: int, m: int) -> int:
    """The least multiple of m that is at least x."""
    return -(-x // m) * m


def with_rng_state(q: Tensor, result: calls.Result) -> ForwardResult:
    """out, lse, dropout's map and its rng_state, which is zeros where there was no dropout."""
    rng_state = result.rng_state
    if rng_state is None:
        rng_state = torch.zeros(2, dtype=torch.int64, device=q.device)
    return result.out, result.lse, result.dropout_map, rng_state


def zero_outside(result: calls.Result, cu_seqlens_q: Tensor) -> calls.Result:
    """The result of packed sequences with out 0 and lse -inf in the rows that belong to none."""
    row = torch.arange(result.out.shape[0], device=cu_seqlens_q.device)
    outside = (row < cu_seqlens_q[0]) | (row >= cu_seqlens_q[-1])
    out = result.out.masked_fill(outside[:, None, None], 0.0)
    return result._replace(out=out, lse=result.lse.masked_fill(outside, float("-inf")))


def _flash_attn_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float,
    softmax_scale: float,
    causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    alibi_slopes: Tensor | None,
    return_softmax: bool,
) -> ForwardResult:
    """out, softmax_lse (B, H, Sq), S_dmask and rng_state (int64 [seed, offset], zeros without dropout).

    S_dmask is dropout's random bytes, uint8 (B, H, Sq, Sk), or empty without dropout or return_softmax.
    """
    result = calls.attention(
        q,
        k,
        v,
        dropout_p=dropout_p,
        softmax_scale=softmax_scale,
        causal=causal,
        window_size=(window_size_left, window_size_right),
        softcap=softcap,
        alibi_slopes=alibi_slopes,
        want_lse=True,
        want_map=return_softmax,
        reproducible=True,
    )
    return with_rng_state(q, result)


def _flash_attn_varlen_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float,
    softmax_scale: float,
    causal: bool,
    window_size_left: int = -1,
    window_size_right: int = -1,
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    return_softmax: bool = False,
    block_table: Tensor | None = None,
    leftpad_k: Tensor | None = None,
    seqused_k: Tensor | None = None,
    zero_tensors: bool = False,
    num_splits: int = 0,
) -> ForwardResult:
    """out, softmax_lse (H, Tq), S_dmask (H, Tq, max_seqlen_k) and rng_state, as `_flash_attn_forward`.

    leftpad_k (int32 (B,)) is each sequence's first valid key, seqused_k (int32 (B,)) the end of its valid keys, counted
    from its start in cu_seqlens_k. zero_tensors also zeroes the rows that belong to no sequence.
    """
    result = calls.varlen_attention(
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        dropout_p=dropout_p,
        softmax_scale=softmax_scale,
        causal=causal,
        window_size=(window_size_left, window_size_right),
        softcap=softcap,
        alibi_slopes=alibi_slopes,
        block_table=block_table,
        want_lse=True,
        want_map=return_softmax,
        seqused_k=seqused_k,
        leftpad_k=leftpad_k,
        num_splits=num_splits,
        reproducible=True,
    )
    if zero_tensors:
        result = zero_outside(result, cu_seqlens_q)
    return with_rng_state(q, result)


def _check_backward(dout: Tensor, q: Tensor, out: Tensor, lse: Tensor, lse_shape: tuple[int, ...]) -> None:
    for name, tensor, shape in (("dout", dout, q.shape), ("out", out, q.shape), ("softmax_lse", lse, lse_shape)):
        if tuple(tensor.shape) != tuple(shape):
            raise InputError(f"{name} has shape {tuple(tensor.shape)}; expected {tuple(shape)}")
    for name, tensor, dtype in (("dout", dout, q.dtype), ("out", out, q.dtype), ("softmax_lse", lse, torch.float32)):
        if (tensor.dtype, tensor.device) != (dtype, q.device):
            raise InputError(f"{name} is {tensor.dtype} on {tensor.device}; expected {dtype} on {q.device}")


def _check_gradients(buffers: tuple[Tensor | None, ...], inputs: tuple[Tensor, ...]) -> None:
    for name, buffer, tensor in zip(("q", "k", "v"), buffers, inputs, strict=True):
        if buffer is not None:
            check_buffer(f"d{name}", buffer, name, tensor)
            _check_own_memory(f"d{name}", buffer)
    given = [(name, buffer) for name, buffer in zip(("dq", "dk", "dv"), buffers, strict=True) if buffer is not None]
    for (first, one), (second, other) in itertools.combinations(given, 2):
        if one is other:
            raise InputError(
                f"{first} and {second} are one tensor; expected two: each gradient needs memory of its own"
            )


def _check_own_memory(name: str, buffer: Tensor) -> None:
    for dimension, (size, stride) in enumerate(zip(buffer.shape, buffer.stride(), strict=True)):
        if size > 1 and stride == 0:
            raise InputError(
                f"{name} has stride 0 in dimension {dimension}: several of its elements are one place in memory; "
                "expected a tensor that is not expanded"
            )


def _check_dropout(dropout_p: float, rng_state: Tensor | None) -> None:
    if dropout_p <= 0.0:
        return
    if rng_state is None:
        raise InputError(
            f"rng_state is None with dropout_p {dropout_p}; expected the one that the forward pass returned: without "
            "it, other weights would be dropped"
        )
    if rng_state.dtype != torch.int64 or tuple(rng_state.shape) != (2,):
        raise InputError(f"rng_state is {rng_state.dtype} {tuple(rng_state.shape)}; expected torch.int64 (2,)")


def _options(
    q: Tensor, dropout_p: float, softmax_scale: float | None, causal: bool, window: tuple[int, int]
) -> dict[str, Any]:
    return {
        "softmax_scale": calls.scale_of(q, softmax_scale),
        "window_left": window[0],
        "window_right": 0 if causal else window[1],
        "dropout_p": dropout_p,
    }


def _write(targets: tuple[Tensor | None, ...], call: Call, dout: Tensor) -> Tensor:
    """Gradients into those of dq, dk and dv that are given; returns softmax_d."""
    *gradients, softmax_d = first_order(call, dout, targets)
    for target, gradient in zip(targets, gradients, strict=True):
        if target is not None and target is not gradient:
            target.copy_(gradient)
    return softmax_d


def _flash_attn_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    softmax_lse: Tensor,
    dq: Tensor | None,
    dk: Tensor | None,
    dv: Tensor | None,
    dropout_p: float,
    softmax_scale: float,
    causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    alibi_slopes: Tensor | None,
    deterministic: bool,
    rng_state: Tensor | None = None,
) -> Tensor:
    """Write the gradients into dq, dk and dv; return softmax_d = sum(dout * out), float32 (B, H, Sq)."""
    check_inputs(
        q,
        k,
        v,
        dropout_p=dropout_p,
        softmax_scale=softmax_scale,
        window_size=(window_size_left, window_size_right),
        softcap=softcap,
        alibi_slopes=alibi_slopes,
    )
    _check_backward(dout, q, out, softmax_lse, (q.shape[0], q.shape[2], q.shape[1]))
    _check_gradients((dq, dk, dv), (q, k, v))
    _check_dropout(dropout_p, rng_state)
    options = _options(q, dropout_p, softmax_scale, causal, (window_size_left, window_size_right))
    call = Call(q, k, v, out, softmax_lse, alibi_slopes, rng_state, None, options, softcap, deterministic)
    return _write((dq, dk, dv), call, dout)


def _flash_attn_varlen_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    softmax_lse: Tensor,
    dq: Tensor | None,
    dk: Tensor | None,
    dv: Tensor | None,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float,
    softmax_scale: float,
    causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    alibi_slopes: Tensor | None,
    deterministic: bool,
    rng_state: Tensor | None = None,
    zero_tensors: bool = False,
) -> Tensor:
    """Write the gradients into dq, dk and dv; return softmax_d = sum(dout * out), float32 (H, Tq).

    Rows that belong to no sequence get zeros, with and without zero_tensors.
    """
    del zero_tensors
    check_varlen_inputs(
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        seqused_k=None,
        leftpad_k=None,
        block_table=None,
        dropout_p=dropout_p,
        softmax_scale=softmax_scale,
        window_size=(window_size_left, window_size_right),
        softcap=softcap,
        alibi_slopes=alibi_slopes,
        num_splits=0,
    )
    _check_backward(dout, q, out, softmax_lse, (q.shape[1], q.shape[0]))
    _check_gradients((dq, dk, dv), (q, k, v))
    _check_dropout(dropout_p, rng_state)
    options = _options(q, dropout_p, softmax_scale, causal, (window_size_left, window_size_right))
    longest_q, longest_k = calls.longest_sequences(q, k, max_seqlen_q, max_seqlen_k)
    options |= {"max_seqlen_q": longest_q, "max_seqlen_k": longest_k}
    sequences = (cu_seqlens_q, cu_seqlens_k)
    call = Call(q, k, v, out, softmax_lse, alibi_slopes, rng_state, sequences, options, softcap, deterministic)
    return _write((dq, dk, dv), call, dout)


# In flash_attn these are handles of torch ops, so that torch.compile takes them whole; here the functions are made of
# torch ops and trace as they are.
_wrapped_flash_attn_forward = _flash_attn_forward
_wrapped_flash_attn_backward = _flash_attn_backward
_wrapped_flash_attn_varlen_forward = _flash_attn_varlen_forward
_wrapped_flash_attn_varlen_backward = _flash_attn_varlen_backward


class _AutogradFunction:
    """flash_attn's autograd functions by name: `apply` takes arguments by position; gradients are the package's own.

    They are the arguments of a public function, and then whether gradients are enabled (default True).
    """

    _public: ClassVar[Callable[..., Any]]
    _count: ClassVar[int]

    def __init_subclass__(cls, public: Callable[..., Any]) -> None:
        cls._public, cls._count = staticmethod(public), len(inspect.signature(public).parameters)

    @classmethod
    def apply(cls, *arguments: Any) -> Any:
        """What the public function returns for these arguments."""
        enabled = all(arguments[cls._count :])
        with torch.set_grad_enabled(enabled and torch.is_grad_enabled()):
            return cls._public(*arguments[: cls._count])


class FlashAttnFunc(_AutogradFunction, public=flash_attn_func):
    """`flash_attn_func`."""


class FlashAttnKVPackedFunc(_AutogradFunction, public=flash_attn_kvpacked_func):
    """`flash_attn_kvpacked_func`."""


class FlashAttnQKVPackedFunc(_AutogradFunction, public=flash_attn_qkvpacked_func):
    """`flash_attn_qkvpacked_func`."""


class FlashAttnVarlenFunc(_AutogradFunction, public=flash_attn_varlen_func):
    """`flash_attn_varlen_func`."""


class FlashAttnVarlenKVPackedFunc(_AutogradFunction, public=flash_attn_varlen_kvpacked_func):
    """`flash_attn_varlen_kvpacked_func`."""


class FlashAttnVarlenQKVPackedFunc(_AutogradFunction, public=flash_attn_varlen_qkvpacked_func):
    """`flash_attn_varlen_qkvpacked_func`."""
