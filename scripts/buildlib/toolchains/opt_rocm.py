"""Toolchains of an installed ROCm: ROCM_PATH or HIP_PATH, then /opt/rocm and its versioned neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from scripts.buildlib.toolchains.layout import Candidate, Parts, bitcode_dirs, inspect_parts

ORIGIN = "ROCm"
_FIX = "install ROCm 6.2 or later with its hip-devel and rocm-llvm packages, or point ROCM_PATH at one"


def rocm_parts(root: Path) -> Parts:
    """Where a ROCm tree keeps AMD's clang, the HIP headers and the device libraries."""
    compilers = (root / "lib" / "llvm" / "bin" / "clang++", root / "llvm" / "bin" / "clang++")
    return Parts(compilers, (root,), bitcode_dirs(root))


def find_candidates(env: Mapping[str, str], gfxs: Sequence[str], opt: Path = Path("/opt")) -> Iterator[Candidate]:
    """One candidate per ROCm tree."""
    roots = [Path(env[name]) for name in ("ROCM_PATH", "HIP_PATH") if env.get(name)]
    roots += [opt / "rocm", *sorted(opt.glob("rocm-*"), reverse=True)]
    seen: set[Path] = set()
    for root in roots:
        if not root.is_dir():
            yield Candidate(ORIGIN, str(root), None, "no such directory", _FIX)
        elif (real := root.resolve()) not in seen:
            seen.add(real)
            yield inspect_parts(ORIGIN, str(root), rocm_parts(root), gfxs, fix=_FIX)
