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

from flash_attn_rocm.archs import load_archs
from tests.conftest import ROOT
from tests.isa.conftest import DEVICES
from tests.isa.hip_runtime import INVALID_HANDLE, INVALID_VALUE, Hip, HipError, Pointer

OUT_OF_MEMORY, INVALID_DIRECTION, NO_DEVICE, INVALID_DEVICE, ALREADY_REGISTERED, NOT_REGISTERED, NOT_SUPPORTED = (
    2,
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
        "lds": at(296, ctypes.c_size_t), "l2": at(616, ctypes.c_int), "memory": at(288, ctypes.c_size_t)})
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
    facts = {"warp": 32, "units": 32, "major": 12, "minor": 0, "lds": 65536, "l2": 8 << 20, "memory": 16 << 30}
    assert answer["devices"] == [{"arch": "gfx1201", **facts}]


def test_properties_come_from_the_tables(emulator: Path) -> None:
    """Every GPU whose family has handlers; the driver asks HIP for nothing else."""
    families = {path.stem for path in (ROOT / "emulator/isa").glob("*.toml")}
    archs = [arch for arch in load_archs().values() if arch.family in families]
    answer = ask_devices(emulator, ",".join(arch.gfx for arch in archs))
    assert answer["devices"] == [
        {
            "arch": arch.gfx,
            "warp": arch.wave_size,
            "units": arch.multiprocessors,
            "major": int(arch.amdgpu_arch.split(".")[0]),
            "minor": int(arch.amdgpu_arch.split(".")[1]),
            "lds": arch.lds_kib << 10,
            "l2": arch.l2_mib << 20,
            "memory": arch.memory_gib << 30,
        }
        for arch in archs
    ]


def test_several_devices(emulator: Path) -> None:
    assert ask_devices(emulator, "gfx1201,gfx1201,gfx1201")["count"] == 3


@pytest.mark.parametrize("setting", [" gfx1201 ,\tgfx1201", ",gfx1201,,gfx1201,", "gfx1201,gfx1201"])
def test_blanks_and_empty_parts_of_the_list(emulator: Path, setting: str) -> None:
    """As in the Python package; a name that comes twice is two devices."""
    assert [device["arch"] for device in ask_devices(emulator, setting)["devices"]] == ["gfx1201", "gfx1201"]


@pytest.mark.parametrize("setting", ["", "  "])
def test_blank_list_is_the_default(emulator: Path, setting: str) -> None:
    assert [device["arch"] for device in ask_devices(emulator, setting)["devices"]] == ["gfx1201"]


@pytest.mark.parametrize("setting", [",", " , "])
def test_list_without_a_name(emulator: Path, setting: str) -> None:
    answer = ask_devices(emulator, setting)
    assert (answer["code"], answer["count"]) == (NO_DEVICE, 0)
    assert "names no GPU" in answer["fault"]


def test_unknown_device(emulator: Path) -> None:
    answer = ask_devices(emulator, "gfx1201,gfx9999")
    assert (answer["code"], answer["count"]) == (NO_DEVICE, 0)
    assert "gfx9999" in answer["fault"]
    assert "gfx1201" in answer["fault"]


def test_device_functions(hip: Hip) -> None:
    device = ctypes.c_int(-1)
    hip.call("hipGetDevice", ctypes.byref(device))
    assert device.value == 0
    assert hip.library.hipSetDevice(len(DEVICES)) == INVALID_DEVICE
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


HUGE = [2**64 - 1, 2**64 - 4096, 2**63, 2**64 - 2**33]


@pytest.mark.parametrize("size", HUGE)
@pytest.mark.parametrize("into", [0, 10])
def test_sizes_that_overflow(hip: Hip, size: int, into: int) -> None:
    """An end computed in 64 bits would lie before the beginning."""
    buffer, host = hip.buffer(np.zeros(100, np.uint8)), np.zeros(100, np.uint8)
    device, here, count = Pointer(buffer.address + into), host.ctypes.data_as(Pointer), ctypes.c_size_t(size)
    assert hip.library.hipMemset(device, 1, count) == INVALID_VALUE
    assert hip.library.hipMemsetAsync(device, 1, count, None) == INVALID_VALUE
    for kind in (1, 3, 4):
        assert hip.library.hipMemcpy(device, here, count, kind) == INVALID_VALUE
    for kind in (2, 3, 4):
        assert hip.library.hipMemcpy(here, device, count, kind) == INVALID_VALUE
    for kind in (0, 4):
        assert hip.library.hipMemcpyAsync(here, Pointer(host.ctypes.data + 50), count, kind, None) == INVALID_VALUE
    # What begins near the end of the address space.
    assert hip.library.hipMemset(Pointer(2**64 - 8), 1, ctypes.c_size_t(16)) == INVALID_VALUE
    assert hip.library.hipMemcpy(Pointer(2**64 - 8), here, ctypes.c_size_t(16), 4) == INVALID_VALUE
    assert hip.library.hipHostRegister(here, count, 0) == INVALID_VALUE
    assert (buffer.read() == 0).all()
    buffer.free()


def test_default_copies_stay_inside_allocations(hip: Hip) -> None:
    data = np.arange(100, dtype=np.uint8)
    buffer, host = hip.buffer(data), np.zeros(200, np.uint8)
    hip.call("hipMemcpy", host.ctypes.data_as(Pointer), Pointer(buffer.address), ctypes.c_size_t(100), 4)
    np.testing.assert_array_equal(host[:100], data)
    here, there, more = host.ctypes.data_as(Pointer), Pointer(buffer.address), ctypes.c_size_t(101)
    assert hip.library.hipMemcpy(here, there, more, 4) == INVALID_VALUE
    assert hip.library.hipMemcpy(there, here, more, 4) == INVALID_VALUE
    buffer.free()


def free_memory(hip: Hip) -> tuple[int, int]:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    hip.call("hipMemGetInfo", ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("size", HUGE)
def test_more_memory_than_there_is(hip: Hip, size: int) -> None:
    pointer = Pointer(1)
    assert hip.library.hipMalloc(ctypes.byref(pointer), ctypes.c_size_t(size)) == OUT_OF_MEMORY
    assert pointer.value is None


def test_memory_of_the_device_is_limited_and_cheap_until_written(hip: Hip) -> None:
    """All of it can be allocated, a byte more cannot; untouched memory is poison and costs nothing."""
    free, total = free_memory(hip)
    assert total == 16 << 30
    before, pointer, other = resident_bytes(), Pointer(), Pointer()
    hip.call("hipMalloc", ctypes.byref(pointer), ctypes.c_size_t(free - 5))
    assert free_memory(hip) == (5, total)
    assert hip.library.hipMalloc(ctypes.byref(other), ctypes.c_size_t(6)) == OUT_OF_MEMORY
    hip.call("hipMalloc", ctypes.byref(other), ctypes.c_size_t(5))
    hip.call("hipFree", other)
    address, last = pointer.value or 0, np.zeros(2, np.uint32)
    for offset in (0, 4096, (64 << 20) - 4, 5 << 30, (free - 5) // 4 * 4 - 8):
        hip.call("hipMemcpy", last.ctypes.data_as(Pointer), Pointer(address + offset), ctypes.c_size_t(8), 2)
        assert (last == 0x7FE17FE1).all()
    hip.call("hipMemset", Pointer(address + (7 << 30)), 1, ctypes.c_size_t(4))
    hip.call("hipMemcpy", last.ctypes.data_as(Pointer), Pointer(address + (7 << 30)), ctypes.c_size_t(8), 2)
    assert last.tolist() == [0x01010101, 0x7FE17FE1]
    hip.call("hipMemcpy", last.ctypes.data_as(Pointer), Pointer(address + (8 << 30)), ctypes.c_size_t(8), 2)
    assert (last == 0x7FE17FE1).all()  # a write does not reach other parts
    assert resident_bytes() - before < 200 << 20
    hip.call("hipFree", pointer)
    assert free_memory(hip) == (free, total)


def test_write_behind_a_large_allocation_is_found_at_free(hip: Hip) -> None:
    pointer, size = Pointer(), (200 << 20) + 5
    hip.call("hipMalloc", ctypes.byref(pointer), ctypes.c_size_t(size))
    ctypes.memset((pointer.value or 0) + size, 1, 1)
    with pytest.raises(HipError, match=f"wrote next to the {size} bytes"):
        hip.call("hipFree", pointer)


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
