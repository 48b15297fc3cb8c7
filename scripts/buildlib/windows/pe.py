"""Reads what a Windows DLL needs and offers: its import and export tables.

Source: Microsoft's "PE Format" document, sections "Optional Header Data Directories", "The .idata Section" and
"The .edata Section".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from scripts.buildlib.errors import BuildError

_AMD64 = 0x8664
_PE32_PLUS = 0x20B
_ORDINAL = 1 << 63


class PeError(BuildError):
    """The file is not a 64-bit Windows program or library."""


@dataclass(frozen=True)
class Library:
    """One DLL or program."""

    imports: dict[str, tuple[str, ...]]  # functions by DLL, as the file spells it
    exports: tuple[str, ...]
    timestamp: int


@dataclass(frozen=True)
class _Image:
    data: bytes
    sections: tuple[tuple[int, int, int], ...]  # address, size, place in the file
    directories: tuple[tuple[int, int], ...]  # address, size
    timestamp: int

    def place(self, address: int) -> int:
        for start, size, place in self.sections:
            if start <= address < start + size:
                return place + address - start
        raise PeError(f"address {address:#x} is in no section")

    def unpack(self, layout: str, address: int) -> tuple[int, ...]:
        return struct.unpack_from(layout, self.data, self.place(address))

    def text(self, address: int) -> str:
        place = self.place(address)
        return self.data[place : self.data.index(b"\0", place)].decode("ascii")


def _read_image(path: Path) -> _Image:
    data = path.read_bytes()
    try:
        (header,) = struct.unpack_from("<I", data, 0x3C)
        if data[:2] != b"MZ" or data[header : header + 4] != b"PE\0\0":
            raise PeError(f"{path}: not a Windows program or library")
        machine, count, timestamp, optional_size = struct.unpack_from("<HHI8xH", data, header + 4)
        optional = header + 24
        (magic,) = struct.unpack_from("<H", data, optional)
        if (machine, magic) != (_AMD64, _PE32_PLUS):
            raise PeError(f"{path}: machine {machine:#x}, format {magic:#x}; expected 64-bit x86")
        (number,) = struct.unpack_from("<I", data, optional + 108)
        directories = [struct.unpack_from("<II", data, optional + 112 + 8 * index) for index in range(number)]
        sections = []
        for index in range(count):
            virtual_size, address, raw_size, place = struct.unpack_from(
                "<IIII", data, optional + optional_size + 40 * index + 8
            )
            sections.append((address, max(virtual_size, raw_size), place))
    except struct.error as error:
        raise PeError(f"{path}: cut off: {error}") from error
    return _Image(data, tuple(sections), tuple((one, two) for one, two in directories), timestamp)


def _imports(image: _Image) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    descriptor = image.directories[1][0]
    while descriptor:
        lookup, _, _, name, addresses = image.unpack("<5I", descriptor)
        if not name:
            break
        entry, names = lookup or addresses, []
        while value := image.unpack("<Q", entry)[0]:
            names.append(f"#{value & 0xFFFF}" if value & _ORDINAL else image.text(value + 2))
            entry += 8
        found[image.text(name)] = tuple(names)
        descriptor += 20
    return found


def _exports(image: _Image) -> tuple[str, ...]:
    directory = image.directories[0][0]
    if not directory:
        return ()
    count, _, names = image.unpack("<III", directory + 24)
    return tuple(image.text(image.unpack("<I", names + 4 * index)[0]) for index in range(count))


def read_library(path: Path) -> Library:
    """What a DLL imports and exports.

    Raises:
        PeError: the file is not a 64-bit Windows program or library, or is cut off.
    """
    image = _read_image(path)
    return Library(_imports(image), _exports(image), image.timestamp)
