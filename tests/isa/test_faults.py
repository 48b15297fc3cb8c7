"""What the emulator refuses: each violation gives HIP's error code and a report that says where and why."""

from __future__ import annotations

import ctypes
import re
import signal
import struct
from pathlib import Path

import numpy as np
import pytest

from tests.isa.cdna import on_device
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
from tests.isa.listings import HEADER, body_of, listing_file, sealed

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


# What the kernels of faults.s do that no RDNA GPU's emulation has.
REFUSED = {
    "set_round_mode": "a change of the rounding, denormal or IEEE mode is not emulated",
    "set_denorm_mode": "a change of the rounding, denormal or IEEE mode is not emulated",
    "set_shader_cycles": "of the hardware registers only MODE may be written",
    "swizzled_load": "swizzled buffers and add_tid are not emulated",
    "swizzled_atomic": "swizzled buffers and add_tid are not emulated",
    "add_tid_load": "swizzled buffers and add_tid are not emulated",
    "add_tid_atomic": "swizzled buffers and add_tid are not emulated",
}


@pytest.mark.parametrize("kernel", REFUSED)
def test_refused_instructions(hip: Hip, isa_kernels: Path, rdna: str, kernel: str) -> None:
    error = launch_fails(hip, isa_kernels / f"{rdna}_faults.co", kernel)
    assert error.code == LAUNCH_FAILURE
    assert REFUSED[kernel] in error.fault


def test_interrupt_message(hip: Hip, isa_kernels: Path) -> None:
    """gfx11's compilers put it behind a trap: it does not stop a load, but a wave that reaches it."""
    with on_device(hip, "gfx1100"):
        error = launch_fails(hip, isa_kernels / "gfx1100_faults.co", "send_interrupt")
    assert error.code == LAUNCH_FAILURE
    assert 'instruction "s_sendmsg sendmsg(MSG_INTERRUPT)"' in error.fault


def test_integer_constant_of_a_bf16_matrix(hip: Hip, isa_kernels: Path) -> None:
    with on_device(hip, "gfx1100"), pytest.raises(HipError) as caught:
        hip.kernel(isa_kernels / "gfx1100_faults.co", "bf16_matrix_with_integer")
    assert caught.value.code == INVALID_IMAGE
    assert "an integer constant of a bf16 matrix is not emulated" in caught.value.fault


def patched(code: Path, kernel: str) -> tuple[bytes, str, str]:
    """The code object with one instruction changed, the body of its listing as shipped, and the instruction's line."""
    image = code.read_bytes()
    listing = body_of(listing_file(code.parents[1] / "decoded", image).read_text())
    section = listing[re.search(rf"^@[0-9a-f]+ {kernel}$", listing, re.MULTILINE).end() :]  # type: ignore[union-attr]
    line = section.splitlines()[1]
    words = b"".join(struct.pack("<I", int(word, 16)) for word in line.split("\t")[0].split())
    assert image.count(words) == 1
    return image.replace(words, struct.pack("<I", 0x12345678)), listing, line


def load_with_listing(hip: Hip, cache: Path, image: bytes, body: str) -> Pointer:
    """A module whose listing in the cache has this body."""
    (cache / "decoded").mkdir(exist_ok=True)
    listing_file(cache / "decoded", image).write_text(sealed(body))
    return hip.load(image)


def test_unknown_instruction(hip: Hip, code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shape without a handler is an error when the function is looked up, before anything runs."""
    image, body, line = patched(code, "to_be_patched")
    monkeypatch.setenv("FLASH_ATTN_ROCM_CACHE", str(tmp_path))
    body = body.replace(line, "12345678\tv_frobnicate_f32_e32 v4, v5, v6")
    module = load_with_listing(hip, tmp_path, image, body)
    hip.function(module, "load_at")  # other kernels of the object still work
    with pytest.raises(HipError) as caught:
        hip.function(module, "to_be_patched")
    assert caught.value.code == INVALID_IMAGE
    where = r'kernel to_be_patched, pc 0x[0-9a-f]+, instruction "v_frobnicate_f32_e32 v4, v5, v6": '
    assert re.search(where + r'no handler for the shape "v_frobnicate_f32 v,v,v"', caught.value.fault)
    assert "KERNEL_DIRS" in caught.value.fault


def test_listing_of_another_code_object(hip: Hip, code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image, body, _ = patched(code, "to_be_patched")
    monkeypatch.setenv("FLASH_ATTN_ROCM_CACHE", str(tmp_path))
    module = load_with_listing(hip, tmp_path, image, body)
    with pytest.raises(HipError) as caught:
        hip.function(module, "to_be_patched")
    assert "does not belong to this code object" in caught.value.fault


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("v_add_nc_u32_e32 v64, v5, v6", "register v64 is beyond the kernel's 64 VGPRs"),
        ("v_add_nc_u32_e32 v4, v5, v200", "register v200 is beyond the kernel's 64 VGPRs"),
        ("v_add_nc_u32_e32 v256, v5, v6", "register v256 does not exist"),
        ("v_add_nc_u32_e32 v4, v5, v300", "register v300 does not exist"),
        ("v_add_nc_u32_e32 v4, a256, v6", "register a256 does not exist"),
        ("v_add_nc_u32_e32 v4, a5, v6", "register a5 is beyond the kernel's 0 AGPRs"),
        ("global_load_b128 v[61:64], v1, s[6:7]", "register v64 is beyond the kernel's 64 VGPRs"),
        ("global_load_b128 v[253:256], v1, s[6:7]", "register v[253:256] does not exist"),
        ("v_mov_b32_e32 v4, s106", "register s106 does not exist"),
        ("v_mov_b32_e32 v4, s4294967296", "no handler for the shape"),
        ("s_load_b128 s[103:106], s[0:1], 0x0", "register s[103:106] does not exist"),
        ("s_load_b128 s[7:4], s[0:1], 0x0", "register s[7:4] does not exist"),
        ("s_mov_b32 s4, ttmp16", "register ttmp16 does not exist"),
        ("v_add_co_u32 v4, exec_lo, v5, v6", "exec as the second destination is not emulated"),
        ("s_getreg_b32 s4, hwreg(HW_REG_STATUS)", "hardware register 56 is not emulated"),  # the low bits of 12345678
    ],
)
def test_registers_that_the_wave_does_not_have(
    hip: Hip, code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, reason: str
) -> None:
    image, body, line = patched(code, "to_be_patched")
    monkeypatch.setenv("FLASH_ATTN_ROCM_CACHE", str(tmp_path))
    module = load_with_listing(hip, tmp_path, image, body.replace(line, f"12345678\t{text}"))
    with pytest.raises(HipError) as caught:
        hip.function(module, "to_be_patched")
    assert caught.value.code == INVALID_IMAGE
    assert f'instruction "{text}": ' in caught.value.fault
    assert reason in caught.value.fault


def padded(image: bytes) -> bytes:
    """The same code object with a hash that no listing has: a number in the padding of its ELF header."""
    return image[:9] + b"\1" + image[10:]


def fake_objdump(tool: Path, listing: str, ending: str = "") -> None:
    """A program that prints a listing's text as llvm-objdump does, then does what `ending` says."""
    pc, out = 0, []
    for row in body_of(listing).splitlines():
        if row.startswith("@"):
            begin, _, symbol = row[1:].partition(" ")
            pc = int(begin, 16)
            out.append(f"{pc:016x} <{symbol}>:")
        else:
            words, _, text = row.partition("\t")
            out.append(f"\t{text} // {pc:012X}: {words}")
            pc += 4 * len(words.split())
    output = tool.with_suffix(".out")
    output.write_text("\n".join(["", *out, ""]))
    tool.write_text(
        f'#!/bin/sh\nif [ "$1" = --version ]; then echo LLVM version 22.1.8; else cat {output}; {ending or ":"}; fi\n'
    )
    tool.chmod(0o755)


DAMAGE = {
    "a register": lambda text: text.replace("v_add_nc_u32_e32 v4, v5, v6", "v_add_nc_u32_e32 v4, v5, v7"),
    "a mnemonic": lambda text: text.replace("v_add_nc_u32_e32 v4, v5, v6", "v_sub_nc_u32_e32 v4, v5, v6"),
    "a lost line": lambda text: "".join(line for line in text.splitlines(True) if "v_add_nc_u32_e32 v4" not in line),
    "a lost end": lambda text: text[: len(text) // 2],
    "nothing but the header": lambda text: text.partition("\n")[0],
    "an empty file": lambda text: "",
    "another version": lambda text: text.replace(HEADER, HEADER.replace("2", "1")),
    "an old header": lambda text: "flash-attn-rocm decoded 1\n" + body_of(text),
    "a checksum": lambda text: text.replace(text.splitlines()[0][-4:], "0000", 1),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("objdump", [True, False])
def test_damaged_listing(
    hip: Hip, code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str, objdump: bool
) -> None:
    """Decoded anew and replaced; an error that names the file where nothing can decode."""
    image = padded(code.read_bytes())
    listing = listing_file(code.parents[1] / "decoded", code.read_bytes()).read_text()
    damaged = DAMAGE[damage](listing)
    assert damaged != listing
    file = listing_file(tmp_path / "decoded", image)
    file.parent.mkdir()
    file.write_text(damaged)
    monkeypatch.setenv("FLASH_ATTN_ROCM_CACHE", str(tmp_path))
    tool = tmp_path / "llvm-objdump"
    monkeypatch.setenv("FLASH_ATTN_ROCM_LLVM_OBJDUMP", str(tool))
    if objdump:
        fake_objdump(tool, listing)
        hip.function(hip.load(image), "to_be_patched")
        assert file.read_text() == listing
        return
    with pytest.raises(HipError) as caught:
        hip.load(image)
    assert caught.value.code == INVALID_IMAGE
    assert str(file) in caught.value.fault
    assert "cannot be run" in caught.value.fault


def test_signals_do_not_cut_a_decode_short(
    hip: Hip, code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's handlers interrupt system calls: reading from the decoder and waiting for its end."""
    monkeypatch.setenv("FLASH_ATTN_ROCM_CACHE", str(tmp_path))
    tool = tmp_path / "llvm-objdump"
    monkeypatch.setenv("FLASH_ATTN_ROCM_LLVM_OBJDUMP", str(tool))
    listing = listing_file(code.parents[1] / "decoded", code.read_bytes()).read_text()
    fake_objdump(tool, listing, "sleep 0.2; exec >&-; sleep 0.2")
    alarms = []
    previous = signal.signal(signal.SIGALRM, lambda *_: alarms.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    try:
        module = hip.load(padded(code.read_bytes()))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    hip.function(module, "load_at")
    assert alarms
    assert listing_file(tmp_path / "decoded", padded(code.read_bytes())).read_text() == listing


@pytest.mark.parametrize("ending", ["exit 3", "kill -9 $$"])
def test_failed_decode_is_not_kept(
    hip: Hip, code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    monkeypatch.setenv("FLASH_ATTN_ROCM_CACHE", str(tmp_path))
    tool = tmp_path / "llvm-objdump"
    monkeypatch.setenv("FLASH_ATTN_ROCM_LLVM_OBJDUMP", str(tool))
    fake_objdump(tool, listing_file(code.parents[1] / "decoded", code.read_bytes()).read_text(), ending)
    with pytest.raises(HipError) as caught:
        hip.load(padded(code.read_bytes()))
    assert caught.value.code == INVALID_IMAGE
    assert not (tmp_path / "decoded").exists()


@pytest.mark.parametrize("kept", [0, 1, 20, 100, -1])
def test_partial_decode_is_not_kept(
    hip: Hip, code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    """A disassembler that ends early and says that all is well."""
    monkeypatch.setenv("FLASH_ATTN_ROCM_CACHE", str(tmp_path))
    tool = tmp_path / "llvm-objdump"
    monkeypatch.setenv("FLASH_ATTN_ROCM_LLVM_OBJDUMP", str(tool))
    fake_objdump(tool, listing_file(code.parents[1] / "decoded", code.read_bytes()).read_text())
    output = tool.with_suffix(".out")
    output.write_text("".join(output.read_text().splitlines(True)[:kept]))
    with pytest.raises(HipError) as caught:
        hip.load(padded(code.read_bytes()))
    assert caught.value.code == INVALID_IMAGE
    assert not (tmp_path / "decoded").exists()


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


def test_preloaded_arguments(hip: Hip, code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """kernarg_preload_spec_length of the kernel descriptor (LLVM's AMDGPU usage document): 2 bytes at 58."""
    from elftools.elf.elffile import ELFFile

    with code.open("rb") as file:
        address = ELFFile(file).get_section_by_name(".dynsym").get_symbol_by_name("load_at.kd")[0]["st_value"]
        file.seek(0)
        segments = [s for s in ELFFile(file).iter_segments() if s["p_type"] == "PT_LOAD"]
        home = next(s for s in segments if s["p_vaddr"] <= address < s["p_vaddr"] + s["p_filesz"])
        offset = address - home["p_vaddr"] + home["p_offset"] + 58
    image = bytearray(code.read_bytes())
    assert image[offset : offset + 2] == b"\0\0"
    body = body_of(listing_file(code.parents[1] / "decoded", bytes(image)).read_text())
    image[offset] = 3
    monkeypatch.setenv("FLASH_ATTN_ROCM_CACHE", str(tmp_path))
    module = load_with_listing(hip, tmp_path, bytes(image), body)
    hip.function(module, "store_at")
    with pytest.raises(HipError, match="kernel load_at wants 3 dwords of its arguments preloaded in SGPRs"):
        hip.function(module, "load_at")


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
        (32, (1, 1, 1), (1 << 22, 1 << 21, 1 << 21), 0, INVALID_CONFIGURATION),
        (32, (1 << 31, 1, 1), (32, 1, 1), 0, INVALID_CONFIGURATION),
        (32, (1, 1, 1), (32, 1, 1), 65537, INVALID_CONFIGURATION),
    ],
)
def test_bad_launch(
    hip: Hip, code: Path, arguments: int, grid: tuple[int, ...], block: tuple[int, ...], lds: int, code_expected: int
) -> None:
    with pytest.raises(HipError) as caught:
        hip.launch(hip.kernel(code, "load_at"), bytes(arguments), grid, block, lds)
    assert caught.value.code == code_expected
