"""Loads the host library at the first use and adds what the C++ op cannot: fake implementation and autograd."""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from flash_attn_rocm import environment, paths
from flash_attn_rocm.backends import sdpa
from flash_attn_rocm.errors import BackendChoiceError, KernelUnavailableError, LibraryNotFoundError

_lock = threading.Lock()
_library: ctypes.CDLL | None = None
_emulated: tuple[str, ...] = ()  # when the library was loaded
_kernels: str | None = None  # FLASH_ATTN_ROCM_KERNELS as the library follows it


def load() -> ctypes.CDLL:
    """Load the host library, tell it where kernels and HIP runtime are, and register the op; once per process.

    Raises:
        LibraryNotFoundError: the library or the emulated runtime is missing, or torch cannot load it.
    """
    global _library
    if _library is None:
        with _lock:
            if _library is None:
                _library = _load()
    return _library


def follow_environment() -> None:
    """Hand a changed FLASH_ATTN_ROCM_KERNELS down to the loaded library.

    Raises:
        BackendChoiceError: FLASH_ATTN_ROCM_EMULATE has changed, which a loaded HIP runtime cannot follow.
    """
    emulated = environment.emulated_gpus()
    if emulated != _emulated:
        now, before = (",".join(gpus) or "unset" for gpus in (emulated, _emulated))
        raise BackendChoiceError(
            f"FLASH_ATTN_ROCM_EMULATE is {now}, but was {before} when the HIP runtime was loaded; a process can use "
            "only one. Set it before the first call, or start another process"
        )
    if os.environ.get(environment.KERNELS) != _kernels:
        library = load()
        with _lock:
            _pass_kernel_roots(library)


def _pass_kernel_roots(library: ctypes.CDLL) -> None:
    global _kernels
    roots = [os.fsencode(root) for root in paths.kernel_roots()]
    _check(
        library, library.fa_rocm_set_kernel_paths((ctypes.c_char_p * len(roots))(*roots), ctypes.c_size_t(len(roots)))
    )
    _kernels = os.environ.get(environment.KERNELS)


def _load() -> ctypes.CDLL:
    global _emulated
    path = paths.library_path()
    remedy = "Reinstall it: conda install --force-reinstall flash-attn-rocm, or set FLASH_ATTN_ROCM_LIBRARY"
    if not path.is_file():
        raise LibraryNotFoundError("host library", path, remedy)
    environment.normalise_emulated_gpus()
    hip_library = paths.hip_library_path()
    try:
        torch.ops.load_library(str(path))
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise LibraryNotFoundError("host library", path, f"It needs torch >= 2.11. {remedy}", str(error)) from error
    try:
        for name in ("fa_rocm_version", "fa_rocm_last_error"):
            getattr(library, name).restype = ctypes.c_char_p
        library.fa_rocm_set_kernel_paths.restype = ctypes.c_int
    except AttributeError as error:
        reason = f"not the host library of this version ({error})"
        raise LibraryNotFoundError("host library", path, remedy, reason) from error
    if hip_library is not None:
        _check(library, library.fa_rocm_use_hip_library(os.fsencode(hip_library)))
    _pass_kernel_roots(library)
    torch.library.register_fake("flash_attn_rocm::fwd", _fake_fwd)
    torch.library.register_fake("flash_attn_rocm::varlen_fwd", _fake_varlen_fwd)
    torch.library.register_fake("flash_attn_rocm::kvcache_fwd", _fake_kvcache_fwd)
    torch.library.register_autograd("flash_attn_rocm::fwd", _backward, setup_context=_save_for_backward)
    _emulated = environment.emulated_gpus()
    return library


def _check(library: ctypes.CDLL, status: int) -> None:
    if status != 0:
        raise RuntimeError(last_error(library))


def last_error(library: ctypes.CDLL) -> str:
    """The text of the last failed call of the C interface on this thread."""
    return str(library.fa_rocm_last_error().decode())


def read_json(function_name: str) -> str:
    """Call one of the C functions that write JSON into a buffer; grows the buffer as needed."""
    library = load()
    function = getattr(library, function_name)
    size = 1 << 14
    while True:
        buffer = ctypes.create_string_buffer(size)
        needed = function(buffer, ctypes.c_size_t(size))
        if needed < 0:
            raise RuntimeError(last_error(library))
        if needed < size:
            return buffer.value.decode()
        size = needed + 1


def _fake_fwd(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    alibi_slopes: Tensor | None = None,
    rng_state: Tensor | None = None,
    *,
    softmax_scale: float,
    window_left: int = -1,
    window_right: int = -1,
    softcap: float = 0.0,
    dropout_p: float = 0.0,
    return_dropout_map: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    # A compiled call inside forward-mode AD: torch.compile traces it anew there (it guards on the dual level), and
    # backends/ck.py cannot look at tensors that are being traced. Without this the tangents would be zeros.
    if forward_ad._current_level >= 0:
        raise KernelUnavailableError(
            "the CK backend does not implement forward-mode AD (torch.func.jvp). Set FLASH_ATTN_ROCM_BACKEND=sdpa and "
            "return_attn_probs=True: torch's fused attention has none either"
        )
    # One tensor on "meta" is enough to be sent here; without this check the others' results would be uninitialised.
    torch._check(q.device == k.device == v.device, lambda: "q, k and v must be on one device")
    batch, seqlen_q, heads, _ = q.shape
    map_shape = (batch, heads, seqlen_q, k.shape[1]) if return_dropout_map and dropout_p > 0.0 else (0,)
    return (
        q.new_empty(q.shape),
        q.new_empty((batch, heads, seqlen_q), dtype=torch.float32),
        q.new_empty(map_shape, dtype=torch.uint8),
    )


def _fake_varlen_fwd(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    rng_state: Tensor | None = None,
    *,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    return_dropout_map: bool = False,
    **_: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    torch._check(q.device == k.device == v.device, lambda: "q, k and v must be on one device")
    rows, heads, _hdim = q.shape
    map_shape = (heads, rows, max_seqlen_k) if return_dropout_map and dropout_p > 0.0 else (0,)
    return (
        q.new_empty(q.shape),
        q.new_empty((heads, rows), dtype=torch.float32),
        q.new_empty(map_shape, dtype=torch.uint8),
    )


def _fake_kvcache_fwd(q: Tensor, k_cache: Tensor, v_cache: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
    torch._check(q.device == k_cache.device == v_cache.device, lambda: "q and the caches must be on one device")
    batch, seqlen_q, heads, _hdim = q.shape
    return q.new_empty(q.shape), q.new_empty((batch, heads, seqlen_q), dtype=torch.float32)


def _save_for_backward(ctx: Any, inputs: Any, keyword_only_inputs: dict[str, Any], output: Any) -> None:
    *tensors, _ = inputs
    ctx.save_for_backward(*tensors)
    ctx.arguments = {name: value for name, value in keyword_only_inputs.items() if name != "return_dropout_map"}
    # An lse that nobody differentiates must come as None: zeros would cost the O(S^2) float32 path.
    ctx.set_materialize_grads(False)


def _backward(
    ctx: Any, grad_out: Tensor | None, grad_lse: Tensor | None, _: Tensor | None
) -> tuple[Tensor | None, ...]:
    """Gradients of q, k, v (none of alibi_slopes and rng_state): the same attention again with torch operations.

    There is no CK backward yet; torch's attention has the same semantics, so that training is right, at the cost of
    one more forward pass.
    """
    if ctx.arguments["dropout_p"] > 0.0:
        raise KernelUnavailableError(
            f"dropout_p is {ctx.arguments['dropout_p']}: the backward pass of the CK backend computes the attention "
            "again and cannot repeat the kernel's random numbers. Set FLASH_ATTN_ROCM_BACKEND=sdpa"
        )
    *tensors, alibi_slopes = ctx.saved_tensors
    if grad_out is None and grad_lse is None:
        return (None,) * 5
    # Autograd enables gradients here iff these gradients are to be differentiated again (create_graph). Then they
    # must depend on the saved tensors themselves, and be made of operations that have second derivatives, which
    # torch's fused attention lacks.
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        leaves = [
            tensor.view_as(tensor) if again and tensor.requires_grad else tensor.detach().requires_grad_()
            for tensor in tensors
        ]
        out, lse, _ = sdpa.forward(
            *leaves, **ctx.arguments, alibi_slopes=alibi_slopes, want_lse=again or grad_lse is not None
        )
        pairs = [(o, g) for o, g in ((out, grad_out), (lse, grad_lse)) if g is not None]
        outputs, grads = [o for o, _ in pairs], [g for _, g in pairs]
        # v has no part in lse: zeros for it.
        return (*torch.autograd.grad(outputs, leaves, grads, create_graph=again, materialize_grads=True), None, None)
