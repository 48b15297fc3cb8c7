"""Read what a compiled code object says about its kernels: our .fa_info records and the AMDGPU metadata note."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from ck.errors import CodeObjectError

_DEVICE = Path(__file__).parents[1] / "csrc" / "device"
KERNEL_ARGS_DEF = _DEVICE / "kernel_args.def"
BWD_ARGS_DEF = _DEVICE / "bwd_args.def"

RECORD_MAGIC = 0x31304146  # "FA01"; csrc/device/kernel_record.hpp
RECORD_VERSION = 1
_HEAD = struct.Struct("<9I")  # magic, version, kargs_bytes, block_threads, tile m, n, hdim_q, hdim_v, arg_count
_SLOT = struct.Struct("<2H")  # offset, size
_ABSENT = 0xFFFF
_RECORD_SUFFIX = "_info"
_NT_AMDGPU_METADATA = 32  # AMDGPU usage guide, "Code Object Metadata"


@dataclass(frozen=True)
class KernelImage:
    """One kernel as its code object describes it. `args` maps an argument's name to (offset, size) in bytes."""

    name: str
    kargs_bytes: int
    block_threads: int
    tile_m: int
    tile_n: int
    tile_hdim_q: int
    tile_hdim_v: int
    args: dict[str, tuple[int, int]]
    wave_size: int
    lds_bytes: int
    scratch_bytes: int
    kernarg_bytes: int
    vgprs: int
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int


def read_arg_names(path: Path = KERNEL_ARGS_DEF) -> tuple[str, ...]:
    """The argument names of a list, in the order of the records' slots."""
    return tuple(re.findall(r"^FA_ARG\((\w+)\)", path.read_text(encoding="utf-8"), flags=re.MULTILINE))


def _names_of(record: bytes, name: str, names: tuple[str, ...], path: Path) -> tuple[str, ...]:
    """The names of a record's slots: the common ones, and those of bwd_args.def in the records of backward kernels."""
    further = read_arg_names(BWD_ARGS_DEF)
    for candidate in (names, names + further):
        if len(record) == _HEAD.size + _SLOT.size * len(candidate):
            return candidate
    raise CodeObjectError(
        path,
        f"record of {name} is {len(record)} bytes; kernel_args.def has {len(names)} names, bwd_args.def {len(further)}",
    )


def _records(elf: ELFFile, path: Path) -> dict[str, bytes]:
    section = elf.get_section_by_name(".fa_info")
    symbols = elf.get_section_by_name(".dynsym")
    if section is None or symbols is None:
        raise CodeObjectError(path, "has no .fa_info records; it was not compiled from ck/render.py's source")
    data: bytes = section.data()
    records = {}
    for symbol in symbols.iter_symbols():
        index = symbol["st_shndx"]
        if isinstance(index, int) and elf.get_section(index).name == ".fa_info":
            start = symbol["st_value"] - section["sh_addr"]
            records[symbol.name.removesuffix(_RECORD_SUFFIX)] = data[start : start + symbol["st_size"]]
    return records


def _metadata(elf: ELFFile, path: Path) -> dict[str, Any]:
    for section in elf.iter_sections():
        if section["sh_type"] != "SHT_NOTE":
            continue
        for note in section.iter_notes():
            if note["n_name"] == "AMDGPU" and note["n_type"] == _NT_AMDGPU_METADATA:
                document = msgpack.unpackb(note["n_descdata"])
                return {kernel[".name"]: kernel for kernel in document["amdhsa.kernels"]}
    raise CodeObjectError(path, "has no AMDGPU metadata note")


def _image(name: str, record: bytes, meta: dict[str, Any], names: tuple[str, ...], path: Path) -> KernelImage:
    names = _names_of(record, name, names, path)
    magic, version, kargs_bytes, threads, m, n, hdim_q, hdim_v, count = _HEAD.unpack_from(record)
    if (magic, version, count) != (RECORD_MAGIC, RECORD_VERSION, len(names)):
        raise CodeObjectError(path, f"record of {name} has magic {magic:#x}, version {version}, {count} arguments")
    slots = _SLOT.iter_unpack(record[_HEAD.size :])
    args = {arg: (offset, size) for arg, (offset, size) in zip(names, slots, strict=True) if offset != _ABSENT}
    by_value = [arg[".size"] for arg in meta[".args"] if arg[".value_kind"] == "by_value"]
    if by_value != [kargs_bytes]:
        raise CodeObjectError(path, f"{name} takes {by_value} bytes by value, its record says {kargs_bytes}")
    if any(offset + size > kargs_bytes for offset, size in args.values()):
        raise CodeObjectError(path, f"record of {name} has an argument outside its {kargs_bytes} bytes")
    if meta[".max_flat_workgroup_size"] != threads:
        raise CodeObjectError(
            path, f"{name} is compiled for {meta['.max_flat_workgroup_size']} threads, its record says {threads}"
        )
    return KernelImage(
        name=name,
        kargs_bytes=kargs_bytes,
        block_threads=threads,
        tile_m=m,
        tile_n=n,
        tile_hdim_q=hdim_q,
        tile_hdim_v=hdim_v,
        args=args,
        wave_size=meta[".wavefront_size"],
        lds_bytes=meta[".group_segment_fixed_size"],
        scratch_bytes=meta[".private_segment_fixed_size"],
        kernarg_bytes=meta[".kernarg_segment_size"],
        vgprs=meta[".vgpr_count"],
        sgprs=meta[".sgpr_count"],
        vgpr_spills=meta[".vgpr_spill_count"],
        sgpr_spills=meta[".sgpr_spill_count"],
    )


def read_code_object(path: Path, names: tuple[str, ...] | None = None) -> dict[str, KernelImage]:
    """Every kernel of a code object, by name.

    Raises:
        CodeObjectError: not a code object of ours, or its records and its metadata disagree.
    """
    names = names if names is not None else read_arg_names()
    try:
        with path.open("rb") as file:
            elf = ELFFile(file)
            records = _records(elf, path)
            metadata = _metadata(elf, path)
    except ELFError as error:
        raise CodeObjectError(path, f"not an ELF file: {error}") from error
    if set(records) != set(metadata):
        raise CodeObjectError(path, f"kernels {sorted(metadata)} but records {sorted(records)}")
    return {name: _image(name, record, metadata[name], names, path) for name, record in records.items()}
