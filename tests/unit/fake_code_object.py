"""Hand-made code objects for tests without a compiler: an ELF file with .fa_info records and AMDGPU metadata."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgpack


@dataclass
class FakeKernel:
    """One kernel; the defaults are those of CK's gfx1201 d64 forward kernel with a mask."""

    name: str
    kargs_bytes: int = 160
    block_threads: int = 128
    tile: tuple[int, int, int, int] = (64, 64, 64, 64)
    args: Mapping[str, tuple[int, int]] = field(default_factory=lambda: {"q_ptr": (0, 8), "seqlen_q": (32, 4)})
    by_value_bytes: int | None = None
    magic: int = 0x31304146
    version: int = 1

    def record(self, names: Sequence[str]) -> bytes:
        head = (self.magic, self.version, self.kargs_bytes, self.block_threads, *self.tile, len(names))
        slots = [self.args.get(name, (0xFFFF, 0)) for name in names]
        return struct.pack("<9I", *head) + b"".join(struct.pack("<2H", *slot) for slot in slots)

    def metadata(self) -> dict[str, object]:
        by_value = self.kargs_bytes if self.by_value_bytes is None else self.by_value_bytes
        return {
            ".name": self.name,
            ".args": [
                {".offset": 0, ".size": by_value, ".value_kind": "by_value"},
                {".offset": by_value, ".size": 4, ".value_kind": "hidden_block_count_x"},
            ],
            ".group_segment_fixed_size": 6656,
            ".private_segment_fixed_size": 64,
            ".kernarg_segment_size": self.kargs_bytes + 256,
            ".max_flat_workgroup_size": self.block_threads,
            ".sgpr_count": 96,
            ".sgpr_spill_count": 0,
            ".vgpr_count": 146,
            ".vgpr_spill_count": 0,
            ".wavefront_size": 32,
        }


def make_code_object(kernels: Sequence[FakeKernel], names: Sequence[str]) -> bytes:
    """The bytes of a code object that holds these kernels. `names` are those of kernel_args.def."""
    base = 0x1000
    info = b"".join(kernel.record(names) for kernel in kernels)
    size = len(info) // max(1, len(kernels))
    strings, symbols = b"\0", struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0)
    for index, kernel in enumerate(kernels):
        for name, section, value in ((f"{kernel.name}_info", 4, base + size * index), (kernel.name, 0xFFF1, 0)):
            symbols += struct.pack("<IBBHQQ", len(strings), 0x11, 3, section, value, size)
            strings += name.encode() + b"\0"
    desc = msgpack.packb({"amdhsa.kernels": [kernel.metadata() for kernel in kernels]})
    note = struct.pack("<III", 7, len(desc), 32) + b"AMDGPU\0\0" + desc + b"\0" * (-len(desc) % 4)
    sections = [
        ("", 0, 0, b"", 0, 0),
        (".note", 7, 0, note, 0, 0),
        (".dynsym", 11, 0, symbols, 3, 24),
        (".dynstr", 3, 0, strings, 0, 0),
        (".fa_info", 1, base, info, 0, 0),
    ]
    section_names = "\0".join([name for name, *_ in sections] + [".shstrtab"]).encode() + b"\0"
    sections.append((".shstrtab", 3, 0, section_names, 0, 0))
    body, headers, offset = b"", b"", 64
    for name, kind, address, data, link, entry in sections:
        at = section_names.index(b"\0" + name.encode() + b"\0") + 1 if name else 0
        headers += struct.pack("<IIQQQQIIQQ", at, kind, 2, address, offset, len(data), link, 0, 4, entry)
        padded = data + b"\0" * (-len(data) % 8)
        body, offset = body + padded, offset + len(padded)
    ident = b"\x7fELF\x02\x01\x01\x40\x03" + b"\0" * 7
    header = ident + struct.pack("<HHIQQQIHHHHHH", 3, 224, 1, 0, 0, offset, 0x4E, 64, 0, 0, 64, len(sections), 5)
    return header + body + headers
