"""What the emulator refuses: each violation gives HIP's error code and a report that says where and why."""

from __future__ import annotations

import ctypes
import hashlib
import re
import struct
from pathlib import Path

import numpy as np
import pytest

from tests.isa.hip_runtime import (
    ILLEGAL_ADDRESS,
    INVALID_CONFIGURATION,
    INVALID_IMAGE,
    INVALID_VALUE,
    LAUNCH_FAILURE,
    NO_BINARY_FOR_GPU,
    NOT_FOUND,
    Hip,
    HipError,
    Pointer,
    pointers,
)

POISON = 0x7FE17FE1


@pytest.fixture
def code(isa_kernels: Path) -> Path:
    return isa_kernels / "gfx1201_faults.co"


def launch_fails(hip: Hip, code: Path, kernel: str, arguments: bytes = b"", block: int = 32) -> HipError:
    with pytest.raises(HipError) as caught:
        hip.launch(hip.kernel(code, kernel), arguments.ljust(32, b"\0"), block=(block, 1, 1))
    assert f"kernel {kernel}, pc 0x" in caught.value.fault
    return caught.value


@pytest.mark.parametrize("kernel", ["load_at", "scalar_load_at"])
@pytest.mark.parametrize(
    ("offset", "words"), [(-1, "1 bytes before the start"), (4093, "4093 bytes into"), (4096, "0 bytes past the end")]
)
def test_load_outside_an_allocation_by_a_byte(hip: Hip, code: Path, kernel: str, offset: int, words: str) -> None:
    buffer = hip.buffer(np.zeros(1024, np.uint32))
    address = buffer.address + offset
    error = launch_fails(hip, code, kernel, struct.pack("<QQ", 0, address))
    buffer.free()
    assert error.code == ILLEGAL_ADDRESS
    if kernel == "load_at":
        assert 'instruction "global_load_b32 v4, v1, s[6:7]": load of 4 bytes outside every allocation' in error.fault
        assert f"lane 5, address {address:#x}, which is {words}" in error.fault
        assert "the 4096 bytes at" in error.fault
        assert "hipMalloc" in error.fault
    else:
        assert "load of 8 bytes outside every allocation" in error.fault


def test_load_at_the_last_byte_is_allowed(hip: Hip, code: Path) -> None:
    buffer = hip.buffer(np.zeros(1024, np.uint32))
    hip.launch(hip.kernel(code, "load_at"), struct.pack("<QQ", 0, buffer.address + 4092).ljust(32, b"\0"))
    buffer.free()


def test_store_into_freed_memory(hip: Hip, code: Path) -> None:
    buffer = hip.buffer(np.zeros(4, np.uint32))
    buffer.free()
    error = launch_fails(hip, code, "store_at", struct.pack("<QQ", 0, buffer.address))
    assert error.code == ILLEGAL_ADDRESS
    assert "store of 2 bytes outside every allocation" in error.fault


def test_registered_host_memory_is_byte_exact(hip: Hip, code: Path) -> None:
    host = np.zeros(64, np.uint8)
    pointer = host.ctypes.data
    hip.call("hipHostRegister", Pointer(pointer), ctypes.c_size_t(7), 2)
    hip.launch(hip.kernel(code, "store_at"), struct.pack("<QQ", 0, pointer + 5).ljust(32, b"\0"))
    error = launch_fails(hip, code, "store_at", struct.pack("<QQ", 0, pointer + 6))
    assert error.code == ILLEGAL_ADDRESS
    assert "registered host memory" in error.fault
    hip.call("hipHostUnregister", Pointer(pointer))
    launch_fails(hip, code, "store_at", struct.pack("<QQ", 0, pointer))


def test_arguments_and_code_are_read_only(hip: Hip, code: Path) -> None:
    """The kernel's own code is readable; the address comes from a load that a store then repeats."""
    error = launch_fails(hip, code, "store_at", struct.pack("<QQ", 0, 0))
    assert error.code == ILLEGAL_ADDRESS


def test_buffer_descriptor_larger_than_the_allocation(hip: Hip, code: Path) -> None:
    buffer = hip.buffer(np.zeros(20, np.uint32))
    error = launch_fails(hip, code, "buffer_too_large", struct.pack("<QQ", 0, buffer.address))
    buffer.free()
    assert error.code == ILLEGAL_ADDRESS
    assert "lane 20," in error.fault


def test_address_from_an_unwritten_register(hip: Hip, code: Path) -> None:
    error = launch_fails(hip, code, "poison_address")
    assert error.code == ILLEGAL_ADDRESS
    assert "never written" in error.fault
    assert f"address {(POISON << 32) | POISON:#x}" in error.fault


def test_unwritten_state_is_poison(hip: Hip, code: Path) -> None:
    """VGPR, SGPR, LDS and scratch start as a NaN pattern, also after another kernel has used them."""
    result = hip.buffer(np.zeros((32, 4), np.uint32))
    for _ in range(2):
        hip.launch(hip.kernel(code, "store_poison"), pointers(result).ljust(32, b"\0"))
        assert (result.read() == POISON).all()
    result.free()
    assert np.isnan(np.array([POISON], np.uint32).view(np.float32)).all()
    assert np.isnan(np.array([POISON], np.uint32).view(np.float16)).all()


def test_fresh_device_memory_is_poison(hip: Hip) -> None:
    pointer, data = Pointer(), np.zeros(5, np.uint32)
    hip.call("hipMalloc", ctypes.byref(pointer), ctypes.c_size_t(20))
    hip.call("hipMemcpy", data.ctypes.data_as(Pointer), pointer, ctypes.c_size_t(20), 2)
    hip.call("hipFree", pointer)
    assert (data == POISON).all()


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        ("lds_outside", "LDS access of 8 bytes outside the workgroup's 128 bytes"),
        ("scratch_outside", "scratch access outside the lane's 16 bytes"),
    ],
)
def test_outside_lds_and_scratch(hip: Hip, code: Path, kernel: str, text: str) -> None:
    error = launch_fails(hip, code, kernel)
    assert error.code == ILLEGAL_ADDRESS
    assert text in error.fault
    assert "lane 31, address 0x7c" in error.fault if kernel == "lds_outside" else "lane 0, address 0x10" in error.fault


def test_instruction_limit(hip: Hip, code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASH_ATTN_ROCM_EMULATOR_INSTRUCTION_LIMIT", "10000")
    error = launch_fails(hip, code, "forever")
    assert error.code == LAUNCH_FAILURE
    assert "instruction limit of 10000 reached" in error.fault


def test_running_past_the_end(hip: Hip, code: Path) -> None:
    error = launch_fails(hip, code, "runs_past_end")
    assert error.code == LAUNCH_FAILURE
    assert "ran past the end of the kernel" in error.fault


def patched(code: Path, kernel: str) -> tuple[bytes, str, str]:
    """The code object with one instruction changed, the listing as shipped, and the line of the instruction in it."""
    image = code.read_bytes()
    listing = (code.parents[1] / "decoded" / f"{hashlib.sha256(image).hexdigest()}.txt").read_text()
    section = listing[re.search(rf"^@[0-9a-f]+ {kernel}$", listing, re.MULTILINE).end() :]  # type: ignore[union-attr]
    line = section.splitlines()[1]
    words = b"".join(struct.pack("<I", int(word, 16)) for word in line.split("\t")[0].split())
    assert image.count(words) == 1
    return image.replace(words, struct.pack("<I", 0x12345678)), listing, line


def test_unknown_instruction(hip: Hip, code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shape without a handler is an error when the function is looked up, before anything runs."""
    image, listing, line = patched(code, "to_be_patched")
    (tmp_path / "decoded").mkdir()
    name = f"{hashlib.sha256(image).hexdigest()}.txt"
    (tmp_path / "decoded" / name).write_text(listing.replace(line, "12345678\tv_frobnicate_f32_e32 v4, v5, v6"))
    monkeypatch.setenv("FLASH_ATTN_ROCM_CACHE", str(tmp_path))
    module = hip.load(image)
    hip.function(module, "load_at")  # other kernels of the object still work
    with pytest.raises(HipError) as caught:
        hip.function(module, "to_be_patched")
    assert caught.value.code == INVALID_IMAGE
    where = r'kernel to_be_patched, pc 0x[0-9a-f]+, instruction "v_frobnicate_f32_e32 v4, v5, v6": '
    assert re.search(where + r'no handler for the shape "v_frobnicate_f32 v,v,v"', caught.value.fault)
    assert "KERNEL_DIRS" in caught.value.fault


def test_listing_of_another_code_object(hip: Hip, code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image, listing, _ = patched(code, "to_be_patched")
    (tmp_path / "decoded").mkdir()
    (tmp_path / "decoded" / f"{hashlib.sha256(image).hexdigest()}.txt").write_text(listing)
    monkeypatch.setenv("FLASH_ATTN_ROCM_CACHE", str(tmp_path))
    module = hip.load(image)
    with pytest.raises(HipError) as caught:
        hip.function(module, "to_be_patched")
    assert "does not belong to this code object" in caught.value.fault


@pytest.mark.parametrize("version", [None, 19])
def test_no_usable_objdump(
    hip: Hip, code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int | None
) -> None:
    tool = tmp_path / "llvm-objdump"
    if version is not None:
        tool.write_text(f"#!/bin/sh\necho 'LLVM version {version}.1.0'\n")
        tool.chmod(0o755)
    monkeypatch.setenv("FLASH_ATTN_ROCM_LLVM_OBJDUMP", str(tool))
    monkeypatch.setenv("FLASH_ATTN_ROCM_CACHE", str(tmp_path / "cache"))
    with pytest.raises(HipError) as caught:
        hip.load(patched(code, "to_be_patched")[0])
    assert caught.value.code == INVALID_IMAGE
    assert f"{tool}: " + ("cannot be run" if version is None else "version 19 is too old") in caught.value.fault
    assert "set FLASH_ATTN_ROCM_LLVM_OBJDUMP" in caught.value.fault


@pytest.mark.parametrize("keep", [10, 64, 300, 2000, 0.5])
def test_truncated_image(hip: Hip, code: Path, keep: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The rest of the memory is zeros: hipModuleLoadData is not told the size."""
    monkeypatch.setenv("FLASH_ATTN_ROCM_LLVM_OBJDUMP", str(tmp_path / "none"))
    monkeypatch.setenv("FLASH_ATTN_ROCM_CACHE", str(tmp_path))
    image = code.read_bytes()
    size = int(len(image) * keep) if keep < 1 else int(keep)
    with pytest.raises(HipError) as caught:
        hip.load(image[:size].ljust(len(image), b"\0"))
    assert caught.value.code == INVALID_IMAGE


def test_random_damage_never_crashes(hip: Hip, code: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLASH_ATTN_ROCM_LLVM_OBJDUMP", str(tmp_path / "none"))
    monkeypatch.setenv("FLASH_ATTN_ROCM_CACHE", str(tmp_path))
    image = code.read_bytes()
    generator = np.random.default_rng(1)
    for _ in range(200):
        damaged = bytearray(image)
        for position in generator.integers(0, 4096, 3):
            damaged[position] = generator.integers(0, 256)
        try:
            hip.call("hipModuleUnload", hip.load(bytes(damaged)))
        except HipError as error:
            assert error.code in (INVALID_IMAGE, NO_BINARY_FOR_GPU)


@pytest.mark.parametrize("image", [b"\x7fELF" + b"\0" * 200, b"not a code object at all" + b"\0" * 100])
def test_not_a_code_object(hip: Hip, image: bytes) -> None:
    with pytest.raises(HipError) as caught:
        hip.load(image)
    assert caught.value.code == INVALID_IMAGE


def test_code_object_of_another_gpu(hip: Hip, code: Path) -> None:
    with pytest.raises(HipError) as caught:
        hip.load(code.read_bytes().replace(b"--gfx1201", b"--gfx1100"))
    assert caught.value.code == NO_BINARY_FOR_GPU
    assert "code object is for gfx1100, device 0 is gfx1201" in caught.value.fault


def test_missing_function(hip: Hip, code: Path) -> None:
    with pytest.raises(HipError) as caught:
        hip.kernel(code, "no_such_kernel")
    assert caught.value.code == NOT_FOUND
    assert "no_such_kernel" in caught.value.fault


@pytest.mark.parametrize(
    ("arguments", "grid", "block", "lds", "code_expected"),
    [
        (8, (1, 1, 1), (32, 1, 1), 0, INVALID_VALUE),
        (32, (0, 1, 1), (32, 1, 1), 0, INVALID_CONFIGURATION),
        (32, (1, 1, 1), (2048, 1, 1), 0, INVALID_CONFIGURATION),
        (32, (1, 70000, 1), (32, 1, 1), 0, INVALID_CONFIGURATION),
        (32, (1, 1, 1), (32, 1, 1), 65537, INVALID_CONFIGURATION),
    ],
)
def test_bad_launch(
    hip: Hip, code: Path, arguments: int, grid: tuple[int, ...], block: tuple[int, ...], lds: int, code_expected: int
) -> None:
    with pytest.raises(HipError) as caught:
        hip.launch(hip.kernel(code, "load_at"), bytes(arguments), grid, block, lds)
    assert caught.value.code == code_expected
