"""Reading a DLL's tables, and the tools of the cross build: what is missing is named."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from scripts.buildlib.windows import host_library, mingw, torch_wheel
from scripts.buildlib.windows.pe import PeError, read_library


def write_dll(path: Path, needed: dict[str, list[str | int]], exports: list[str], machine: int = 0x8664) -> Path:
    """A DLL with one section at 0x1000 that holds these tables, laid out by the PE Format document."""
    base, data = 0x1000, bytearray(4096)
    place = 40 + 20 * (len(needed) + 1)

    def put(content: bytes) -> int:
        nonlocal place
        data[place : place + len(content)] = content
        address, place = base + place, (place + len(content) + 7) // 8 * 8
        return address

    for row, (name, functions) in enumerate(needed.items()):
        values = [1 << 63 | one if isinstance(one, int) else put(b"\0\0" + one.encode() + b"\0") for one in functions]
        table = put(struct.pack(f"<{len(values) + 1}Q", *values, 0))
        struct.pack_into("<5I", data, 40 + 20 * row, table, 0, 0, put(name.encode() + b"\0"), table)
    names = put(struct.pack(f"<{len(exports)}I", *(put(one.encode() + b"\0") for one in exports)))
    struct.pack_into("<IIHH7I", data, 0, 0, 0, 0, 0, 0, 1, len(exports), len(exports), 0, names, 0)
    directories = [(base, 40), (base + 40, 20)] + [(0, 0)] * 14
    optional = struct.pack("<H106xI", 0x20B, 16) + b"".join(struct.pack("<II", *one) for one in directories)
    head = b"MZ".ljust(0x3C, b"\0") + struct.pack("<I", 64) + b"PE\0\0"
    head += struct.pack("<HHI8xHH", machine, 1, 77, len(optional), 0x2022) + optional
    head += struct.pack("<8sIIII16x", b".rdata", len(data), base, len(data), 1024)
    path.write_bytes(head.ljust(1024, b"\0") + data)
    return path


def test_imports_and_exports_are_read(tmp_path: Path) -> None:
    library = read_library(write_dll(tmp_path / "a.dll", {"KERNEL32.dll": ["Sleep", 7], "x.dll": []}, ["one", "two"]))
    assert library.imports == {"KERNEL32.dll": ("Sleep", "#7"), "x.dll": ()}
    assert library.exports == ("one", "two")
    assert library.timestamp == 77


@pytest.mark.parametrize(
    ("content", "message"), [(b"", "cut off"), (b"\x7fELF" + bytes(80), "not a Windows"), (b"MZ" + bytes(80), "not a")]
)
def test_other_files_are_rejected(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.dll").write_bytes(content)
    with pytest.raises(PeError, match=message):
        read_library(tmp_path / "a.dll")


def test_a_dll_for_another_machine_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(PeError, match=r"machine 0xaa64.*expected 64-bit x86"):
        read_library(write_dll(tmp_path / "a.dll", {}, [], machine=0xAA64))


def test_only_torch_and_windows_may_be_needed(tmp_path: Path) -> None:
    host_library.check_imports(write_dll(tmp_path / "a.dll", {"torch_cpu.dll": ["f"], "KERNEL32.dll": ["g"]}, []))
    with pytest.raises(host_library.ForeignDllError, match=r"needs libstdc\+\+-6.dll, amdhip64.dll; allowed: kernel32"):
        host_library.check_imports(
            write_dll(tmp_path / "b.dll", {"libstdc++-6.dll": ["f"], "torch_cpu.dll": ["g"], "amdhip64.dll": []}, [])
        )


def test_a_missing_compiler_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(mingw.MingwError, match=f"is not on PATH: apt-get install {re.escape(mingw.PACKAGE)}"):
        mingw.find_mingw(may_install=False)
    with pytest.raises(mingw.MingwError, match="this is not Debian"):
        mingw.find_mingw()


def test_an_old_compiler_is_rejected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / mingw.COMPILER).write_text("#!/bin/sh\necho 10-posix\n", encoding="utf-8")
    (tmp_path / mingw.COMPILER).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(mingw.MingwError, match="is version 10-posix; needed: 12 or later"):
        mingw.find_mingw()


def test_the_wheel_of_torch_is_pinned(tmp_path: Path) -> None:
    assert len(torch_wheel.pinned_hash()) == 64
    (tmp_path / "r.txt").write_text("torch==2.13.0\n", encoding="utf-8")
    with pytest.raises(torch_wheel.TorchWheelError, match="no hash of torch"):
        torch_wheel.pinned_hash(tmp_path / "r.txt")
