"""Find the compiler for the kernels: ask every place for candidates and choose one, or say why there is none."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from scripts.buildlib.cache_root import cache_root
from scripts.buildlib.errors import ToolchainNotFoundError
from scripts.buildlib.toolchains import conda, opt_rocm, registry, rocm_sdk
from scripts.buildlib.toolchains.layout import Candidate, Toolchain

__all__ = ["Candidate", "Toolchain", "choose", "find_toolchain", "list_candidates"]


def list_candidates(
    gfxs: Sequence[str],
    env: Mapping[str, str] = os.environ,
    cache: Path | None = None,
    may_install: bool = True,
) -> Iterator[Candidate]:
    """Candidates for compiling kernels of these GPUs, best place first.

    In a conda recipe's build, only that build's prefixes. The registry installs or downloads only when nothing before
    it worked and `may_install` is true.
    """
    if conda.in_recipe_build(env):
        yield from conda.find_candidates(env, gfxs)
        return
    works = False
    for finder in (conda, opt_rocm, rocm_sdk):
        for candidate in finder.find_candidates(env, gfxs):
            works = works or candidate.toolchain is not None
            yield candidate
    yield from registry.find_candidates(env, gfxs, cache or cache_root(env), may_install and not works)


def choose(candidates: Iterable[Candidate]) -> Toolchain:
    """The first candidate that has everything; later ones are not asked for.

    Raises:
        ToolchainNotFoundError: none has; it lists every candidate with its reason and the command that would help.
    """
    rejected = []
    for candidate in candidates:
        if candidate.toolchain is not None:
            return candidate.toolchain
        rejected.append((f"{candidate.origin} ({candidate.where})", candidate.reason, candidate.fix))
    raise ToolchainNotFoundError(rejected)


def find_toolchain(gfxs: Sequence[str], env: Mapping[str, str] = os.environ) -> Toolchain:
    """The toolchain for these GPUs.

    Raises:
        ToolchainNotFoundError: no place has everything.
    """
    return choose(list_candidates(gfxs, env))
