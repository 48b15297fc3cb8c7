"""Public attention functions: the signatures and defaults of flash_attn 2.x, handed to the chosen backend."""

from __future__ import annotations

from torch import Tensor

from flash_attn_rocm import backends


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Tensor | tuple[Tensor, Tensor, Tensor]:
    """Attention softmax(q k^T softmax_scale) v, with grouped heads, causal and window masks aligned bottom-right.

    Args:
        q: (batch, seqlen_q, nheads, headdim), float16 or bfloat16.
        k: (batch, seqlen_k, nheads_k, headdim); nheads is a multiple of nheads_k.
        v: like k.
        dropout_p: probability of dropping an attention weight; 0 in evaluation.
        softmax_scale: finite factor on q k^T; headdim ** -0.5 by default.
        causal: query i sees keys up to i + seqlen_k - seqlen_q.
        window_size: (left, right) keys seen around that position; negative is unbounded. causal sets right to 0.
        softcap: above 0, scores become softcap * tanh(score / softcap).
        alibi_slopes: float32 (nheads,) or (batch, nheads); -slope * |i + seqlen_k - seqlen_q - j| is added to scores.
        deterministic: accepted and unused: the backward pass is torch's, which torch.use_deterministic_algorithms
            governs.
        return_attn_probs: also return the log-sum-exp of the scores and the dropout pattern.

    Returns:
        out (batch, seqlen_q, nheads, headdim); with return_attn_probs (out, lse, S_dmask), where lse is float32
        (batch, nheads, seqlen_q) and S_dmask is empty without dropout. A query that sees no key gives out 0 and
        lse -inf.

    Raises:
        InputError: an argument has a wrong rank, dtype, device, shape or value.
        KernelsNotInstalledError: the tensors are on a GPU whose kernel package is not installed.
        NoKernelsForGpuError: FLASH_ATTN_ROCM_BACKEND=ck on a GPU for which this version has no kernels.
        KernelUnavailableError: the installed kernels do not cover this request.
    """
    del deterministic
    return backends.attention(
        q,
        k,
        v,
        dropout_p=dropout_p,
        softmax_scale=softmax_scale,
        causal=causal,
        window_size=window_size,
        softcap=softcap,
        alibi_slopes=alibi_slopes,
        return_attn_probs=return_attn_probs,
    )
