"""A toolchain, a candidate for one, and the checks that turn files found somewhere into either or a reason."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flash_attn_rocm.archs import load_arch
from scripts.buildlib.commands import run_command
from scripts.buildlib.compile_flags import device_flags
from scripts.buildlib.errors import CommandError

MIN_CLANG = 20
MIN_HIP = (6, 2)
# Every way a kernel uses the toolchain in a few lines: HIP headers, device libraries (exp2 of ocml), amdgcn, lld.
_PROBE = """#include <hip/hip_runtime.h>
extern "C" __global__ void probe(float* x) { x[threadIdx.x] = exp2f(x[threadIdx.x]) + sinf(x[threadIdx.x]); }
"""


@dataclass(frozen=True)
class Toolchain:
    """Everything that compiling a kernel needs. `rocm_path` is the directory that holds include/hip."""

    origin: str
    clang: Path
    clangxx: Path
    lld: Path
    llvm_objdump: Path | None
    rocm_path: Path
    device_lib_path: Path
    resource_dir: Path
    clang_version: str
    clang_target: str
    lld_version: str
    hip_version: str
    bitcode_version: str

    @property
    def hip_include(self) -> Path:
        """The directory that holds hip/hip_runtime.h."""
        return self.rocm_path / "include"


@dataclass(frozen=True)
class Candidate:
    """One place that may have a toolchain: the toolchain, or why it is none and the command that would help."""

    origin: str
    where: str
    toolchain: Toolchain | None = None
    reason: str = ""
    fix: str = ""
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Parts:
    """Paths where each part may be, best first; paths that do not exist are skipped."""

    clangxx: Sequence[Path]
    rocm_roots: Sequence[Path]
    bitcode: Sequence[Path]


class _RejectedError(Exception):
    """Why a candidate is no toolchain; never leaves this module."""


def bitcode_dirs(root: Path) -> tuple[Path, ...]:
    """Where distributions put the device libraries below a prefix."""
    fixed = (
        root / "amdgcn" / "bitcode",
        root / "lib" / "amdgcn" / "bitcode",
        root / "lib" / "llvm" / "amdgcn" / "bitcode",
    )
    globbed = [
        path
        for pattern in (
            "lib/llvm*/lib/clang/*/amdgcn/bitcode",
            "lib/llvm*/lib/clang/*/lib/amdgcn/bitcode",
            "lib/clang/*/amdgcn/bitcode",
            "llvm/lib/clang/*/lib/amdgcn/bitcode",
        )
        for path in sorted(root.glob(pattern), reverse=True)
    ]
    return (*fixed, *globbed)


def first_existing(paths: Iterable[Path]) -> Path | None:
    """The first path that exists."""
    return next((path for path in paths if path.exists()), None)


def bitcode_producer(file: Path) -> str:
    """The LLVM version that wrote a bitcode file, e.g. "LLVM21.1.8", or "unknown".

    The identification block stores it in 6-bit characters that are not byte aligned (LLVM bitcode file format).
    """
    alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._"
    head = file.read_bytes()[:64]
    bits = int.from_bytes(head, "little")
    for shift in range(len(head) * 8 - 24):
        text = "".join(alphabet[(bits >> (shift + 6 * index)) & 63] for index in range(16))
        if found := re.match(r"LLVM\d+(\.\d+){0,2}", text):
            return found.group()
    return "unknown"


def _major(version: str) -> int:
    found = re.search(r"(\d+)\.", version)
    return int(found.group(1)) if found else 0


def read_hip_version(rocm_root: Path) -> tuple[int, ...] | None:
    """(major, minor, patch) of the HIP headers below a root, or None."""
    header = rocm_root / "include" / "hip" / "hip_version.h"
    if not header.exists():
        return None
    text = header.read_text(encoding="utf-8", errors="replace")
    numbers = [re.search(rf"#define HIP_VERSION_{part}\s+(\d+)", text) for part in ("MAJOR", "MINOR", "PATCH")]
    return tuple(int(number.group(1)) for number in numbers if number)


def _inspect_clang(clangxx: Path, versions: dict[str, str]) -> tuple[str, str, Path]:
    """Version line, default target and lld of a clang that can be used."""
    try:
        lines = run_command("clang", [clangxx, "--version"]).splitlines()
        version = next((line for line in lines if "clang version" in line), "")
        versions["clang"] = version
        if (major := _major(version)) < MIN_CLANG:
            raise _RejectedError(f"clang {major} is too old; at least {MIN_CLANG} is needed")
        if "amdgcn" not in run_command("clang", [clangxx, "--print-targets"]):
            raise _RejectedError("its clang was built without the amdgcn target")
        lld = Path(run_command("clang", [clangxx, "-print-prog-name=ld.lld"]).strip())
    except CommandError as error:
        raise _RejectedError(str(error)) from error
    if not lld.is_absolute() or not lld.exists():
        raise _RejectedError("its clang finds no lld")
    target = next((line.removeprefix("Target:").strip() for line in lines if line.startswith("Target:")), "")
    return version, target, lld


def _inspect_rocm(parts: Parts, gfxs: Sequence[str], versions: dict[str, str]) -> tuple[Path, str, Path]:
    """HIP root, HIP version and bitcode directory that can be used."""
    found = [(root, version) for root in parts.rocm_roots if (version := read_hip_version(root))]
    if not found:
        raise _RejectedError("no HIP headers (include/hip/hip_version.h)")
    root, version = found[0]
    versions["HIP"] = ".".join(str(number) for number in version)
    if version[:2] < MIN_HIP:
        raise _RejectedError(f"HIP headers {versions['HIP']} are too old; at least {MIN_HIP[0]}.{MIN_HIP[1]} is needed")
    bitcode = first_existing(parts.bitcode)
    if bitcode is None:
        raise _RejectedError("no ROCm device-library bitcode (amdgcn/bitcode)")
    lacking = [gfx for gfx in gfxs if not (bitcode / f"oclc_isa_version_{gfx.removeprefix('gfx')}.bc").exists()]
    if lacking:
        raise _RejectedError(f"its device libraries do not know {', '.join(lacking)}")
    versions["bitcode"] = bitcode_producer(bitcode / "ockl.bc")
    return root, versions["HIP"], bitcode


def _probe(toolchain: Toolchain, gfx: str) -> None:
    """Compile a tiny kernel with the flags of real ones: it shows what versions do not, such as unreadable bitcode."""
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "probe.hip"
        source.write_text(_PROBE, encoding="utf-8")
        command: list[str | Path] = [
            toolchain.clangxx,
            *device_flags(load_arch(gfx)),
            f"--rocm-path={toolchain.rocm_path}",
            f"--rocm-device-lib-path={toolchain.device_lib_path}",
            source,
            "-o",
            Path(scratch) / "probe.co",
        ]
        try:
            run_command("the test kernel", command)
        except CommandError as error:
            first = next((line for line in error.output.splitlines() if "error:" in line), error.output[:200])
            raise _RejectedError(f"it cannot compile a test kernel for {gfx}: {first}") from error


def inspect_parts(origin: str, where: str, parts: Parts, gfxs: Sequence[str], fix: str = "") -> Candidate:
    """Check one place for everything a kernel needs, ending with a real compile for the first GPU in `gfxs`."""
    versions: dict[str, str] = {}
    try:
        clangxx = first_existing(parts.clangxx)
        if clangxx is None:
            raise _RejectedError("no clang++")
        version, target, lld = _inspect_clang(clangxx, versions)
        rocm_path, hip_version, bitcode = _inspect_rocm(parts, gfxs, versions)
        objdump = Path(run_command("clang", [clangxx, "-print-prog-name=llvm-objdump"]).strip())
        clang = clangxx.with_name(clangxx.name.replace("clang++", "clang"))
        toolchain = Toolchain(
            origin=origin,
            clang=clang if clang.exists() else clangxx,
            clangxx=clangxx,
            lld=lld,
            llvm_objdump=objdump if objdump.is_absolute() and objdump.exists() else None,
            rocm_path=rocm_path,
            device_lib_path=bitcode,
            resource_dir=Path(run_command("clang", [clangxx, "-print-resource-dir"]).strip()),
            clang_version=version,
            clang_target=target,
            lld_version=run_command("lld", [lld, "--version"]).strip(),
            hip_version=hip_version,
            bitcode_version=versions["bitcode"],
        )
        if gfxs:
            _probe(toolchain, gfxs[0])
    except (_RejectedError, CommandError) as error:
        return Candidate(origin, where, None, str(error), fix, versions)
    return Candidate(origin, where, toolchain, versions=versions)
