"""The attention methods that are compared: one entry of METHODS and one small loader each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module, metadata
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from flash_attn_rocm import environment
from flash_attn_rocm.backends import backward_kernels, choice_for, ck_backward
from flash_attn_rocm.benchmark.problem import Problem
from flash_attn_rocm.errors import FlashAttnRocmError
from flash_attn_rocm.limits import NAMED_DTYPES

# (q, k, v, causal) -> out, all in the layout of the method.
Attention = Callable[[Tensor, Tensor, Tensor, bool], Tensor]
_UPSTREAM_TRITON = "FLASH_ATTENTION_TRITON_AMD_ENABLE"


class NotAvailableError(Exception):
    """A method is not installed, or cannot run on this device; the text says why."""


@dataclass(frozen=True)
class Method:
    """One way to compute attention.

    Attributes:
        name: for options and JSON.
        title: for people.
        layout: of its tensors: "bshd" is (batch, seqlen, heads, headdim), "bhsd" has heads before seqlen.
        backward: whether it has gradients.
        allowed_error: of its output against float32, relative; methods that quantise need more.
        load: the function, for tensors on a device; raises NotAvailableError.
        variables: environment variables while it runs.
        lacks: why it does not compute a shape in a direction itself, or "".
        distribution: whose version the report shows.
    """

    name: str
    title: str
    layout: str
    backward: bool
    allowed_error: float
    load: Callable[[torch.device], Attention]
    variables: Mapping[str, str] = field(default_factory=dict)
    distribution: str = "torch"
    lacks: Callable[[Problem, str, torch.device], str] = lambda problem, direction, device: ""

    def version(self) -> str | None:
        """Version of the distribution that has the method; None where it is not installed."""
        return distribution_version(self.distribution)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Its environment variables are set inside."""
        before = {name: os.environ.get(name) for name in self.variables}
        os.environ.update(self.variables)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def distribution_version(name: str) -> str | None:
    """Version of an installed distribution, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _import(module: str, hint: str) -> Any:
    """A module of an optional package.

    Raises:
        NotAvailableError: it is absent, or fails while it is imported.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise NotAvailableError(f"not installed: no module {error.name} ({hint})") from error
    except Exception as error:  # another package's import may fail in any way
        raise NotAvailableError(f"installed, but `import {module}` fails: {type(error).__name__}: {error}") from error


def _need_gpu(device: torch.device) -> None:
    if device.type != "cuda":
        raise NotAvailableError(f"needs a GPU; the tensors are on {device.type}")


def _load_sdpa(device: torch.device) -> Attention:
    def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])

    return attention


def _load_sage(device: torch.device) -> Attention:
    version = distribution_version("sageattention")
    if version is not None and not version.startswith("1."):
        raise NotAvailableError(f"sageattention {version} is installed; V1 is 1.0.6")
    sageattn = _import("sageattention", "pip install sageattention==1.0.6").sageattn
    _need_gpu(device)

    def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
        result: Tensor = sageattn(q, k, v, tensor_layout="HND", is_causal=causal)
        return result

    return attention


def _load_flex(device: torch.device) -> Attention:
    _import("triton", "it comes with torch's GPU builds")
    _need_gpu(device)
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled = torch.compile(flex_attention, dynamic=False)

    @cache
    def causal_mask(seqlen: int) -> Any:
        return create_block_mask(lambda b, h, i, j: i >= j, None, None, seqlen, seqlen, device=device)

    def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
        mask = causal_mask(q.shape[2]) if causal else None
        result: Tensor = compiled(q, k, v, block_mask=mask, enable_gqa=q.shape[1] != k.shape[1])
        return result

    return attention


def _load_upstream_triton(device: torch.device) -> Attention:
    version = distribution_version("flash_attn")
    if version is not None and "+flash.attn.rocm" in version:
        raise NotAvailableError("not installed: the import name flash_attn belongs to flash-attn-rocm-compat")
    if torch.version.hip is None:
        raise NotAvailableError("needs a ROCm build of torch")
    flash_attn = _import("flash_attn", "flash-attn with its Triton backend for AMD GPUs")
    _need_gpu(device)

    def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
        result: Tensor = flash_attn.flash_attn_func(q, k, v, causal=causal)
        return result

    return attention


def _load_package(device: torch.device) -> Attention:
    """This package's function; what it runs on is in the variables of its method."""
    try:
        choice_for(device.type, device.index)
    except FlashAttnRocmError as error:
        raise NotAvailableError(str(error)) from error
    from flash_attn_rocm import flash_attn_func

    def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
        result: Tensor = flash_attn_func(q, k, v, causal=causal)
        return result

    return attention


def _lacks_kernels(problem: Problem, direction: str, device: torch.device) -> str:
    """Where no backward kernel covers a shape, gradients come from torch: that would be timed in CK's name."""
    if direction == "forward":
        return ""  # there it raises
    manifest = backward_kernels(device.type, device.index)
    if manifest is not None and ck_backward.covers(
        manifest,
        mode="batch",
        dtype=NAMED_DTYPES[problem.dtype],
        hdim=problem.headdim,
        longest=problem.seqlen,
        masked=problem.causal,
        alibi=False,
        dropout=False,
        deterministic=False,
    ):
        return ""
    return f"no backward kernel is installed for {problem.name}; torch computes its gradients"


def package_method(backend: str, title: str) -> Method:
    """flash_attn_func of this package on one backend."""
    variables = {environment.BACKEND: backend}
    method = Method(backend, title, "bshd", True, 0.02, _load_package, variables, "flash-attn-rocm")
    return replace(method, lacks=_lacks_kernels) if backend == "ck" else method


REFERENCE = Method("sdpa", "PyTorch SDPA", "bhsd", True, 0.02, _load_sdpa)
# 16-bit methods come to 0.002 to 0.005; SageAttention's int8 q and k to about 0.02.
METHODS = (
    REFERENCE,
    Method("sage", "SageAttention V1", "bhsd", False, 0.08, _load_sage, distribution="sageattention"),
    Method("flex", "FA2 Triton (torch flex_attention)", "bhsd", True, 0.02, _load_flex, distribution="triton"),
    Method(
        "fa2-triton", "FA2 Triton (flash_attn)", "bshd", True, 0.02, _load_upstream_triton,
        {_UPSTREAM_TRITON: "TRUE"}, "flash_attn",
    ),
    package_method("ck", "FA2 CK"),
)  # fmt: skip
