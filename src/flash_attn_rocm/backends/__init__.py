"""Chooses the backend of an attention call: CK kernels or torch's attention."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from flash_attn_rocm import environment, ops, paths
from flash_attn_rocm.archs import load_arch, load_archs
from flash_attn_rocm.backends import ck
from flash_attn_rocm.errors import BackendChoiceError, KernelsNotInstalledError
from flash_attn_rocm.gpu_identity import override_note
from flash_attn_rocm.policy import Rule, rule_for, table_rule

Rules = Callable[[str, str], Rule]  # of a GPU and a direction


@dataclass(frozen=True)
class Choice:
    """What runs, why, and on which AMD GPU (None when the device is not one)."""

    backend: str
    reason: str
    gfx: str | None = None


def choose(
    *,
    device_type: str,
    hip: bool,
    gfx: str | None,
    emulated: tuple[str, ...],
    override: str | None,
    installed: Collection[str],
    current: int = 0,
    note: str = "",
    rules: Rules = table_rule,
) -> Choice:
    """Choose the forward backend from the facts alone; reads nothing else.

    Args:
        device_type: torch device type of the tensors.
        hip: torch is built for ROCm, so that device type "cuda" means an AMD GPU.
        gfx: name of the AMD GPU that holds the tensors, if any.
        emulated: GPUs to emulate for CPU tensors, from FLASH_ATTN_ROCM_EMULATE.
        override: value of FLASH_ATTN_ROCM_BACKEND, if set.
        installed: GPUs whose kernels are installed.
        current: which of the emulated GPUs is the calling thread's.
        note: what an error should add about the machine's GPUs.
        rules: the policy of each GPU; only asked where it decides.

    Raises:
        BackendChoiceError: the override is unknown or cannot be followed.
        UnsupportedGpuError: no table for this GPU.
        KernelsNotInstalledError: CK kernels should run and are not installed.
    """
    if override and override not in environment.FORCED:
        allowed = "; ".join(environment.FORCED)
        raise BackendChoiceError(f"FLASH_ATTN_ROCM_BACKEND is {override!r}; allowed: {allowed} (backward), or unset")
    forced = environment.FORCED[override][0] if override else None
    for name in emulated:
        load_arch(name, environment.EMULATE)
    if forced == "sdpa":
        return Choice("sdpa", "FLASH_ATTN_ROCM_BACKEND=sdpa", gfx)
    if device_type == "cpu" and emulated:
        return _require_kernels(emulated[current], f"FLASH_ATTN_ROCM_EMULATE={','.join(emulated)}", installed)
    if device_type == "cuda" and hip and gfx:
        return _choose_for_gpu(gfx, emulated, (override, rules), installed, note)
    what = {"cpu": "CPU tensors", "cuda": "the GPU is not an AMD GPU"}.get(device_type, f"{device_type} tensors")
    if forced == "ck":
        raise BackendChoiceError(
            f"FLASH_ATTN_ROCM_BACKEND={override} cannot be followed: {what}, and CK kernels need an AMD GPU with a "
            "ROCm build of torch, or CPU tensors with FLASH_ATTN_ROCM_EMULATE=<gfx> set"
        )
    return Choice("sdpa", what)


def _choose_for_gpu(
    gfx: str,
    emulated: tuple[str, ...],
    asked: tuple[str | None, Rules],
    installed: Collection[str],
    note: str,
) -> Choice:
    if emulated:
        raise BackendChoiceError(
            f"FLASH_ATTN_ROCM_EMULATE={','.join(emulated)} is set, so the emulated HIP runtime is in use, "
            f"but the tensors are on a real GPU ({gfx}). Move them to the CPU or unset FLASH_ATTN_ROCM_EMULATE"
        )
    override, rules = asked
    arch = load_arch(gfx, note=note)
    if override:  # not sdpa: that needs no GPU
        return _require_kernels(arch.gfx, f"FLASH_ATTN_ROCM_BACKEND={override}", installed, note)
    rule = rules(arch.gfx, "forward")
    if rule.backend == "sdpa":
        return Choice("sdpa", rule.reason(arch.gfx, "forward"), arch.gfx)
    return _require_kernels(arch.gfx, f"{rule.source} for {arch.gfx}: forward = ck", installed, note)


def _require_kernels(gfx: str, reason: str, installed: Collection[str], note: str = "") -> Choice:
    if gfx in installed:
        return Choice("ck", reason, gfx)
    raise KernelsNotInstalledError(gfx, paths.kernel_roots(), installed, note)


@cache
def gpu_name(index: int) -> str:
    """gfx name of a GPU of a ROCm torch, without feature suffixes; device properties are read once."""
    return str(torch.cuda.get_device_properties(index).gcnArchName).split(":", 1)[0]


def choice_for(device_type: str, device_index: int | None) -> Choice:
    """The choice for tensors on this device, with the environment variables as they are now.

    CPU tensors have no index: it is that of an emulated GPU, by default the first.
    """
    hip = torch.version.hip is not None
    gfx = None
    if device_type == "cuda" and hip:
        gfx = gpu_name(torch.cuda.current_device() if device_index is None else device_index)
    return choose(
        device_type=device_type,
        hip=hip,
        gfx=gfx,
        emulated=environment.emulated_gpus(),
        override=os.environ.get(environment.BACKEND) or None,
        installed=frozenset(paths.find_manifests()),
        current=(device_index or 0) if device_type == "cpu" else 0,
        note=override_note(load_archs()) if gfx else "",
        rules=rule_for,
    )


@cache
def _chosen(device_type: str, device_index: int | None, *variables: str | None) -> str:
    """The backend for these values of environment.CHOICE, remembered."""
    del variables  # only the key of the memory
    return choice_for(device_type, device_index).backend


# What was prepared, by device, and the values of environment.CHOICE that it holds for.
_prepared: tuple[tuple[object, ...], dict[tuple[str, int | None], str]] = ((), {})


def prepare(device_type: str, device_index: int | None) -> str:
    """Choose, and load what the choice needs; cheap when nothing has changed since the last call."""
    global _prepared
    values, by_device = _prepared
    if values == environment.choice_values():
        backend = by_device.get((device_type, device_index))
        if backend is not None:
            return backend
    get = os.environ.get
    backend = _chosen(device_type, device_index, *[get(name) for name in environment.CHOICE])
    if backend == "ck":
        ck.prepare()  # which may write a variable anew
    values = environment.choice_values()
    others = by_device if values == _prepared[0] else {}
    _prepared = (values, {**others, (device_type, device_index): backend})
    return backend


def backward_choice(gfx: str, rules: Rules = rule_for) -> Choice:
    """The choice for the gradients of calls whose forward runs on this GPU's CK kernels."""
    if forced := environment.forced_backward():
        return Choice(forced, f"{environment.BACKEND}={os.environ[environment.BACKEND]}", gfx)
    rule = rules(gfx, "backward")
    return Choice(rule.backend, rule.reason(gfx, "backward"), gfx)


@cache
def _backward_kernels(device_type: str, device_index: int | None, *variables: str | None) -> Path | None:
    """kernels.json of the GPU whose policy wants CK's backward, for these values of environment.CHOICE, remembered."""
    del variables  # only the key of the memory
    gfx = choice_for(device_type, device_index).gfx
    if gfx is None or backward_choice(gfx).backend != "ck":
        return None
    return paths.find_manifests()[gfx]


def backward_kernels(device_type: str, device_index: int | None) -> Path | None:
    """kernels.json of the kernels that gradients on this device come from; None: they come from torch operations."""
    if prepare(device_type, device_index) != "ck":
        return None
    get = os.environ.get
    if device_type == "cpu" and "," in (get(environment.EMULATE) or ""):
        device_index = ops.current_emulated_device()
    return _backward_kernels(device_type, device_index, *[get(name) for name in environment.CHOICE])


# What torch.compiler.assume_constant_result does, without importing torch._dynamo (seconds): a compiled caller
# evaluates the choice, and loads the library, once while it is traced. The attribute is private to torch: it works in
# 2.11.0 and 2.13.0, and tests/api/test_torch_integration.py fails where torch renames it.
prepare._dynamo_marked_constant = True  # type: ignore[attr-defined]
