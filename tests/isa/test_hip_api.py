"""The HIP functions around kernels: devices, memory, streams, handles, error names."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.isa.hip_runtime import INVALID_HANDLE, INVALID_VALUE, Hip, HipError, Pointer

INVALID_DIRECTION, NO_DEVICE, INVALID_DEVICE, ALREADY_REGISTERED, NOT_REGISTERED, NOT_SUPPORTED = (
    21,
    100,
    101,
    712,
    713,
    801,
)

DEVICE_SCRIPT = """
import ctypes, json, sys
hip = ctypes.CDLL(sys.argv[1])
hip.flash_attn_rocm_emulator_last_fault.restype = ctypes.c_char_p
count = ctypes.c_int(-1)
out = {"code": hip.hipGetDeviceCount(ctypes.byref(count)), "count": count.value, "devices": []}
for i in range(max(count.value, 0)):
    block = ctypes.create_string_buffer(1472)
    assert hip.hipGetDevicePropertiesR0600(block, i) == 0
    at = lambda offset, kind: kind.from_buffer_copy(block, offset).value
    out["devices"].append({"arch": block.raw[1160:1416].split(b"\\0")[0].decode(), "warp": at(308, ctypes.c_int),
        "units": at(388, ctypes.c_int), "major": at(360, ctypes.c_int), "minor": at(364, ctypes.c_int),
        "lds": at(296, ctypes.c_size_t)})
out["fault"] = hip.flash_attn_rocm_emulator_last_fault().decode()
print(json.dumps(out))
"""


def ask_devices(emulator: Path, emulate: str | None) -> dict[str, Any]:
    """The list of devices is read once per process, so each setting needs its own."""
    environment = {key: value for key, value in os.environ.items() if key != "FLASH_ATTN_ROCM_EMULATE"}
    environment |= {} if emulate is None else {"FLASH_ATTN_ROCM_EMULATE": emulate}
    command = [sys.executable, "-c", DEVICE_SCRIPT, str(emulator / "libamdhip64.so")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_one_device_by_default(emulator: Path) -> None:
    """Offsets of hipDeviceProp_t in HIP 6; 32 multiprocessors is what owners of a RX 9070 XT see (64 compute units)."""
    answer = ask_devices(emulator, None)
    assert answer["devices"] == [{"arch": "gfx1201", "warp": 32, "units": 32, "major": 12, "minor": 0, "lds": 65536}]


def test_several_devices(emulator: Path) -> None:
    assert ask_devices(emulator, "gfx1201,gfx1201,gfx1201")["count"] == 3


def test_unknown_device(emulator: Path) -> None:
    answer = ask_devices(emulator, "gfx1201,gfx9999")
    assert (answer["code"], answer["count"]) == (NO_DEVICE, 0)
    assert "gfx9999" in answer["fault"]
    assert "gfx1201" in answer["fault"]


def test_device_functions(hip: Hip) -> None:
    device = ctypes.c_int(-1)
    hip.call("hipGetDevice", ctypes.byref(device))
    assert device.value == 0
    assert hip.library.hipSetDevice(5) == INVALID_DEVICE
    assert hip.library.hipSetDevice(-1) == INVALID_DEVICE
    version = ctypes.c_int()
    hip.call("hipRuntimeGetVersion", ctypes.byref(version))
    assert 60_000_000 <= version.value < 70_000_000
    warp, processors = ctypes.c_int(), ctypes.c_int()
    hip.call("hipDeviceGetAttribute", ctypes.byref(warp), 87, 0)
    hip.call("hipDeviceGetAttribute", ctypes.byref(processors), 63, 0)
    assert (warp.value, processors.value) == (32, 32)
    assert hip.library.hipDeviceGetAttribute(ctypes.byref(warp), 9999, 0) == NOT_SUPPORTED


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (0, "hipSuccess"),
        (1, "hipErrorInvalidValue"),
        (2, "hipErrorOutOfMemory"),
        (100, "hipErrorNoDevice"),
        (200, "hipErrorInvalidImage"),
        (209, "hipErrorNoBinaryForGpu"),
        (500, "hipErrorNotFound"),
        (700, "hipErrorIllegalAddress"),
        (719, "hipErrorLaunchFailure"),
        (12345, "hipErrorUnknown"),
    ],
)
def test_error_names(hip: Hip, code: int, name: str) -> None:
    assert hip.library.hipGetErrorName(code).decode() == name
    assert hip.library.hipGetErrorString(code)


def test_last_error_is_kept_once(hip: Hip) -> None:
    hip.library.hipGetLastError()
    assert hip.library.hipMalloc(None, ctypes.c_size_t(4)) == INVALID_VALUE
    assert hip.library.hipGetLastError() == INVALID_VALUE
    assert hip.library.hipGetLastError() == 0


def test_copies_and_fills(hip: Hip) -> None:
    data = np.arange(100, dtype=np.uint8)
    buffer = hip.buffer(data)
    hip.call("hipMemset", Pointer(buffer.address + 10), 0xAB, ctypes.c_size_t(20))
    data[10:30] = 0xAB
    np.testing.assert_array_equal(buffer.read(), data)
    other = hip.buffer(np.zeros(100, np.uint8))
    hip.call("hipMemcpyAsync", Pointer(other.address), Pointer(buffer.address), ctypes.c_size_t(100), 3, None)
    np.testing.assert_array_equal(other.read(), data)
    size = ctypes.c_size_t(101)
    assert hip.library.hipMemcpy(Pointer(buffer.address), data.ctypes.data_as(Pointer), size, 1) == INVALID_VALUE
    assert hip.library.hipMemset(Pointer(buffer.address), 0, size) == INVALID_VALUE
    assert (
        hip.library.hipMemcpy(Pointer(buffer.address), Pointer(other.address), ctypes.c_size_t(4), 9)
        == INVALID_DIRECTION
    )
    buffer.free()
    other.free()


def test_free_of_unknown_memory(hip: Hip) -> None:
    buffer = hip.buffer(np.zeros(4, np.uint8))
    assert hip.library.hipFree(Pointer(buffer.address + 1)) == INVALID_VALUE
    buffer.free()
    assert hip.library.hipFree(Pointer(buffer.address)) == INVALID_VALUE
    assert hip.library.hipFree(None) == 0


def test_write_beside_an_allocation_is_found_at_free(hip: Hip) -> None:
    buffer = hip.buffer(np.zeros(5, np.uint8))
    ctypes.memset(buffer.address + 5, 1, 1)
    with pytest.raises(HipError, match="wrote next to the 5 bytes"):
        buffer.free()


def test_host_registration(hip: Hip) -> None:
    host = np.zeros(16, np.uint8)
    pointer = host.ctypes.data_as(Pointer)
    hip.call("hipHostRegister", pointer, ctypes.c_size_t(16), 2)
    assert hip.library.hipHostRegister(pointer, ctypes.c_size_t(16), 2) == ALREADY_REGISTERED
    hip.call("hipHostUnregister", pointer)
    assert hip.library.hipHostUnregister(pointer) == NOT_REGISTERED


def test_pointer_attributes(hip: Hip) -> None:
    class Attributes(ctypes.Structure):
        _fields_ = [("type", ctypes.c_int), ("device", ctypes.c_int), ("rest", ctypes.c_uint8 * 24)]

    buffer, host, attributes = hip.buffer(np.zeros(16, np.uint8)), np.zeros(16, np.uint8), Attributes()
    hip.call("hipPointerGetAttributes", ctypes.byref(attributes), Pointer(buffer.address + 15))
    assert (attributes.type, attributes.device) == (2, 0)
    hip.call("hipPointerGetAttributes", ctypes.byref(attributes), host.ctypes.data_as(Pointer))
    assert attributes.type == 0
    buffer.free()


def test_handles_are_checked(hip: Hip) -> None:
    stream = Pointer()
    hip.call("hipStreamCreateWithFlags", ctypes.byref(stream), 1)
    hip.call("hipStreamSynchronize", stream)
    hip.call("hipStreamDestroy", stream)
    assert hip.library.hipStreamDestroy(stream) == INVALID_HANDLE
    assert hip.library.hipStreamSynchronize(stream) == INVALID_HANDLE
    assert hip.library.hipModuleUnload(Pointer(0x1234)) == INVALID_HANDLE
    assert hip.library.hipModuleLaunchKernel(Pointer(0x1234), 1, 1, 1, 32, 1, 1, 0, None, None, None) == INVALID_HANDLE


def test_unloaded_module_takes_its_functions_along(hip: Hip, isa_kernels: Path) -> None:
    module = hip.load((isa_kernels / "gfx1201_lanes.co").read_bytes())
    function = hip.function(module, "branches")
    hip.call("hipModuleUnload", module)
    with pytest.raises(HipError) as caught:
        hip.launch(function, bytes(32))
    assert caught.value.code == INVALID_HANDLE


def test_only_hip_is_exported(emulator: Path) -> None:
    """Nothing else, so that the library never replaces symbols of the program that loads it."""
    from elftools.elf.elffile import ELFFile

    with (emulator / "libamdhip64.so").open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".dynsym").iter_symbols()
        exported = {symbol.name for symbol in symbols if symbol["st_shndx"] != "SHN_UNDEF"}
    assert all(name.startswith(("hip", "flash_attn_rocm_emulator_")) for name in exported), sorted(exported)
