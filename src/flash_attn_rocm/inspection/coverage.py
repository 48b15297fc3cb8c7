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
    paged: bool = False


def _plain(op: str, mode: str, **changes: Any) -> dict[str, Any]:
    return {"op": op, "mode": mode, "bias": "none", "softcap": False, "dropout": False, **changes}


CALLS = (
    Call("forward", "forward", _plain("fmha_fwd", "batch")),
    Call("forward with ALiBi", "forward", _plain("fmha_fwd", "batch", bias="alibi")),
    Call("forward with softcap", "forward", _plain("fmha_fwd", "batch", softcap=True)),
    Call("forward with dropout", "forward", _plain("fmha_fwd", "batch", dropout=True)),
    Call("varlen forward", "forward", _plain("fmha_fwd", "group")),
    Call("KV cache", "forward", {"op": "fmha_fwd_splitkv", "page": 0}),
    Call("paged KV cache", "forward", {"op": "fmha_fwd_splitkv"}, paged=True),
    Call("backward", "backward", _plain("fmha_bwd", "batch")),
    Call("varlen backward", "backward", _plain("fmha_bwd", "group")),
)


@dataclass(frozen=True)
class Cover:
    """The dtypes, and the largest head dim and whether any smaller one goes, that kernels have for a call."""

    dtypes: tuple[str, ...]
    head_dims: str

    def __bool__(self) -> bool:
        return bool(self.dtypes)


def _matches(kernel: Kernel, call: Call) -> bool:
    return all(kernel[key] == value for key, value in call.fields.items()) and (not call.paged or kernel["page"] > 0)


def cover(kernels: Iterable[Kernel], call: Call) -> Cover:
    """What the kernels have for a kind of call; false where they have nothing."""
    rows = [kernel for kernel in kernels if _matches(kernel, call)]
    padded = max((row["hdim_q"] for row in rows if row["padding"] == "full"), default=0)
    exact = sorted({row["hdim_q"] for row in rows if row["hdim_q"] > padded})
    dims = ([f"1-{padded}"] if padded else []) + [str(dim) for dim in exact]
    return Cover(tuple(sorted({row["dtype"] for row in rows})), ", ".join(dims))
