"""Loads the host library at the first use; op_registration adds what the C++ ops cannot."""

from __future__ import annotations

import ctypes
import os
import threading

import torch

from flash_attn_rocm import environment, op_registration, paths
from flash_attn_rocm.archs import load_archs
from flash_attn_rocm.errors import BackendChoiceError, LibraryNotFoundError

_lock = threading.Lock()
_library: ctypes.CDLL | None = None
_emulated: tuple[str, ...] = ()  # when the library was loaded
_kernels: str | None = None  # FLASH_ATTN_ROCM_KERNELS as the library follows it


def load() -> ctypes.CDLL:
    """Load the host library, tell it where kernels and HIP runtime are, and register the ops; once per process.

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


def _pass_caches(library: ctypes.CDLL) -> None:
    """What the tables say of each GPU's last-level cache, by whose size the library groups heads."""
    for arch in load_archs().values():
        size = ctypes.c_longlong(arch.llc_mib << 20)
        _check(library, library.fa_rocm_set_last_level_cache(arch.gfx.encode(), size, int(arch.head_grouping)))


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
    _pass_caches(library)
    op_registration.register()
    _emulated = environment.emulated_gpus()
    return library


def current_emulated_device() -> int:
    """Which of the emulated GPUs is the calling thread's, as hipSetDevice left it; CPU tensors run there."""
    path, device = paths.hip_library_path(), ctypes.c_int()
    status = ctypes.CDLL(str(path)).hipGetDevice(ctypes.byref(device))
    if status != 0:
        raise RuntimeError(f"hipGetDevice of {path} failed with error {status}")
    return device.value


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
