"""A small driver of the HIP runtime through ctypes, independent of the project's host library."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

SUCCESS = 0
INVALID_VALUE = 1
INVALID_CONFIGURATION = 9
INVALID_IMAGE = 200
NO_BINARY_FOR_GPU = 209
INVALID_HANDLE = 400
NOT_FOUND = 500
ILLEGAL_ADDRESS = 700
LAUNCH_FAILURE = 719

Pointer = ctypes.c_void_p


class HipError(Exception):
    """A HIP call that failed: `code` is HIP's number, `fault` the emulator's text."""

    def __init__(self, call: str, code: int, fault: str) -> None:
        super().__init__(f"{call} returned {code}: {fault}")
        self.call, self.code, self.fault = call, code, fault


class Buffer:
    """Device memory with the bytes of a numpy array."""

    def __init__(self, hip: Hip, data: np.ndarray) -> None:
        self.hip, self.dtype, self.shape, self.bytes = hip, data.dtype, data.shape, data.nbytes
        pointer = Pointer()
        hip.call("hipMalloc", ctypes.byref(pointer), ctypes.c_size_t(data.nbytes))
        self.address = pointer.value or 0
        contiguous = np.ascontiguousarray(data)
        hip.call(
            "hipMemcpy", Pointer(self.address), contiguous.ctypes.data_as(Pointer), ctypes.c_size_t(data.nbytes), 1
        )

    def read(self) -> np.ndarray:
        result = np.empty(self.shape, self.dtype)
        self.hip.call(
            "hipMemcpy", result.ctypes.data_as(Pointer), Pointer(self.address), ctypes.c_size_t(self.bytes), 2
        )
        return result

    def free(self) -> None:
        self.hip.call("hipFree", Pointer(self.address))


class Hip:
    """The runtime library; `call` raises HipError for any result but success."""

    def __init__(self, library: Path) -> None:
        self.library = ctypes.CDLL(str(library))
        self.library.flash_attn_rocm_emulator_last_fault.restype = ctypes.c_char_p
        self.library.flash_attn_rocm_emulator_profile.restype = ctypes.c_char_p
        self.library.flash_attn_rocm_emulator_executed.restype = ctypes.c_ulonglong
        self.library.hipGetErrorName.restype = ctypes.c_char_p
        self.library.hipGetErrorString.restype = ctypes.c_char_p
        self._modules: dict[Path, Pointer] = {}

    def fault(self) -> str:
        return str(self.library.flash_attn_rocm_emulator_last_fault().decode())

    def executed(self) -> int:
        return int(self.library.flash_attn_rocm_emulator_executed())

    def call(self, name: str, *arguments: Any) -> None:
        code = getattr(self.library, name)(*arguments)
        if code != SUCCESS:
            raise HipError(name, code, self.fault())

    def load(self, image: bytes) -> Pointer:
        module = Pointer()
        self.call("hipModuleLoadData", ctypes.byref(module), ctypes.c_char_p(image))
        return module

    def function(self, module: Pointer, name: str) -> Pointer:
        function = Pointer()
        self.call("hipModuleGetFunction", ctypes.byref(function), module, name.encode())
        return function

    def kernel(self, path: Path, name: str) -> Pointer:
        """A kernel of a code object file; each file is loaded once."""
        if path not in self._modules:
            self._modules[path] = self.load(path.read_bytes())
        return self.function(self._modules[path], name)

    def buffer(self, data: np.ndarray) -> Buffer:
        return Buffer(self, data)

    def launch(
        self,
        function: Pointer,
        arguments: bytes,
        grid: Sequence[int] = (1, 1, 1),
        block: Sequence[int] = (32, 1, 1),
        lds_bytes: int = 0,
        stream: Pointer | None = None,
    ) -> None:
        data = ctypes.create_string_buffer(arguments, len(arguments))
        size = ctypes.c_size_t(len(arguments))
        extra = (Pointer * 5)(1, ctypes.addressof(data), 2, ctypes.addressof(size), 3)
        self.call(
            "hipModuleLaunchKernel", function, *map(ctypes.c_uint, (*grid, *block, lds_bytes)), stream, None, extra
        )
        self.call("hipStreamSynchronize", stream)


def pointers(*buffers: Buffer) -> bytes:
    """Kernel arguments that are the addresses of buffers."""
    return struct.pack(f"<{len(buffers)}Q", *(buffer.address for buffer in buffers))
