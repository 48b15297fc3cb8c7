"""The public functions keep the signatures and defaults of flash_attn 2.x: callers pass arguments by position."""

from __future__ import annotations

import inspect

import flash_attn_rocm


def test_flash_attn_func() -> None:
    parameters = inspect.signature(flash_attn_rocm.flash_attn_func).parameters.values()
    assert [(p.name, p.default) for p in parameters] == [
        ("q", inspect.Parameter.empty),
        ("k", inspect.Parameter.empty),
        ("v", inspect.Parameter.empty),
        ("dropout_p", 0.0),
        ("softmax_scale", None),
        ("causal", False),
        ("window_size", (-1, -1)),
        ("softcap", 0.0),
        ("alibi_slopes", None),
        ("deterministic", False),
        ("return_attn_probs", False),
    ]
    assert all(p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for p in parameters)
