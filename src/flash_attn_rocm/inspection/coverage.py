"""What the kernels of a kernels.json cover, in the terms of the functions that use them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Kernel = Mapping[str, Any]


@dataclass(frozen=True)
class Call:
    """A kind of attention call: its direction, and the fields that a kernel for it has in kernels.json."""

    name: str
    direction: str
    fields: Mapping[str, Any]


def _plain(op: str, mode: str, **changes: Any) -> dict[str, Any]:
    return {"op": op, "mode": mode, "bias": "none", "softcap": False, "dropout": False, **changes}


CALLS = (
    Call("forward", "forward", _plain("fmha_fwd", "batch")),
    Call("forward with ALiBi", "forward", _plain("fmha_fwd", "batch", bias="alibi")),
    Call("forward with softcap", "forward", _plain("fmha_fwd", "batch", softcap=True)),
    Call("forward with dropout", "forward", _plain("fmha_fwd", "batch", dropout=True)),
    Call("varlen forward", "forward", _plain("fmha_fwd", "group")),
    Call("KV cache", "forward", _plain("fmha_fwd_splitkv", "group", page=0)),
    # Kernels for pages of 64 rows take multiples of that alone, and only make calls faster that others cover.
    Call("paged KV cache", "forward", _plain("fmha_fwd_splitkv", "group", page=16)),
    Call("backward", "backward", _plain("fmha_bwd", "batch")),
    Call("varlen backward", "backward", _plain("fmha_bwd", "group")),
)


# Head dims of a call's kernels by dtype: up to the largest whose kernel takes any smaller one, and single ones.
Cover = dict[str, str]


def _head_dims(rows: Iterable[Kernel]) -> str:
    dims = {(row["hdim_q"], row["padding"]) for row in rows}
    padded = max((hdim for hdim, padding in dims if padding == "full"), default=0)
    exact = sorted({hdim for hdim, _ in dims if hdim > padded})
    return ", ".join([f"1-{padded}"] * (padded > 0) + [str(hdim) for hdim in exact])


def cover(kernels: Iterable[Kernel], call: Call, masked: bool = True) -> Cover:
    """What the kernels have for a kind of call with any lengths; empty where they have nothing.

    Args:
        masked: causal or with a window; kernels with mask serve calls without one too.
    """
    rows = [
        kernel
        for kernel in kernels
        if all(kernel[key] == value for key, value in call.fields.items())
        and (kernel["mask"] or not masked)
        and kernel["padding"] != "none"  # those take whole tiles only
    ]
    dtypes = sorted({row["dtype"] for row in rows})
    return {dtype: _head_dims(row for row in rows if row["dtype"] == dtype) for dtype in dtypes}
