"""Toolchains in a conda environment: conda-forge's and rock-the-conda's hip-devel, rocm-device-libs and clang.

In a recipe's build the compiler is in BUILD_PREFIX and the libraries are in PREFIX; elsewhere CONDA_PREFIX has both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from scripts.buildlib.toolchains.layout import Candidate, Parts, bitcode_dirs, inspect_parts

ORIGIN = "conda"
_FIX = "conda install clangxx lld llvm-tools hip-devel rocm-device-libs"


def in_recipe_build(env: Mapping[str, str]) -> bool:
    """Whether a conda package is being built: then nothing outside its prefixes may be used."""
    return bool(env.get("CONDA_BUILD") or env.get("BUILD_PREFIX"))


def find_candidates(env: Mapping[str, str], gfxs: Sequence[str]) -> Iterator[Candidate]:
    """One candidate: the environment that is active, or being built in."""
    names = ("BUILD_PREFIX", "PREFIX") if in_recipe_build(env) else ("CONDA_PREFIX",)
    prefixes = [Path(env[name]) for name in names if env.get(name)]
    if not prefixes:
        yield Candidate(ORIGIN, "CONDA_PREFIX", None, "no conda environment is active")
        return
    where = ", ".join(str(prefix) for prefix in prefixes)
    compilers = [Path(env["HIPCXX"])] if env.get("HIPCXX") else []
    # AMD's own clang first: registers and spills differ by compiler, and AMD tunes its own.
    compilers += [prefix / "lib" / "llvm" / "bin" / "clang++" for prefix in prefixes]
    compilers += [prefix / "bin" / "clang++" for prefix in prefixes]
    parts = Parts(compilers, prefixes[::-1], [path for prefix in prefixes[::-1] for path in bitcode_dirs(prefix)])
    yield inspect_parts(ORIGIN, where, parts, gfxs, fix=_FIX)
