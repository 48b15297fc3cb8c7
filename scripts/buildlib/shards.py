"""Split a plan over machines: each computes the same split and compiles its part; one then takes the results of all.

Results travel as compile caches, whose keys name no path. So what was made from other sources or by another compiler is
not found, and the packages' build, which looks into the same cache, needs to be told nothing.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ck.plan import Unit
from scripts.buildlib.cache import CompileCache
from scripts.buildlib.cache_root import cache_root
from scripts.buildlib.compile_job import Job, job_key, job_roots
from scripts.buildlib.errors import BadRequestError, BuildError
from scripts.buildlib.jobs import estimate_cpu_s

KERNEL_CACHE = "kernels"  # below the cache root
SHARD_CACHE = "cache"  # below a shard's output directory


@dataclass(frozen=True)
class Shard:
    """Part `index` (from 1) of `count`."""

    index: int
    count: int


def parse_shard(text: str) -> Shard:
    """`2/5` is the second of five parts.

    Raises:
        BadRequestError: it is not of that form, or there is no such part.
    """
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    shard = Shard(*map(int, found.groups())) if found else Shard(0, 0)
    if not 1 <= shard.index <= shard.count:
        raise BadRequestError("--shard", text, "I/N with I from 1 to N, such as 2/5")
    return shard


def units_of_shard(units: Sequence[Unit], shard: Shard) -> tuple[Unit, ...]:
    """The shard's units, in the plan's order. The longest first, each to the part that has least to do so far.

    It depends on the plan alone, so that parts never overlap and nothing is left over.
    """
    loads = [0.0] * shard.count
    mine = set()
    for unit in sorted(units, key=lambda unit: (-estimate_cpu_s(unit), unit.name)):
        part = loads.index(min(loads))
        loads[part] += estimate_cpu_s(unit)
        if part == shard.index - 1:
            mine.add(unit.name)
    return tuple(unit for unit in units if unit.name in mine)


def share_results(out: Path, jobs: Sequence[Job]) -> None:
    """Leave the results of a shard in `out`/cache, for `take_results` on another machine."""
    directory = out / SHARD_CACHE
    shutil.rmtree(directory, ignore_errors=True)
    CompileCache(cache_root() / KERNEL_CACHE).copy_to(CompileCache(directory), [job_key(job) for job in jobs])


def take_results(shared: Sequence[Path], jobs: Sequence[Job]) -> None:
    """Put what shards left in `SHARD_CACHE` below their output directories into this machine's compile cache.

    Raises:
        BadRequestError: a directory is no such one.
        BuildError: none of them holds what a job makes.
    """
    cache = CompileCache(cache_root() / KERNEL_CACHE)
    for directory in shared:
        part = CompileCache(directory)
        if not (keys := part.keys()):
            raise BadRequestError("--merge", str(directory), "DIR/cache of every `kernels --shard I/N --out DIR`")
        part.copy_to(cache, keys)
    lacking = [job.unit for job in jobs if cache.find(job_key(job), job_roots(job)) is None]
    if lacking:
        raise BuildError(
            f"{len(lacking)} of {len(jobs)} code objects are in no directory of --merge: {', '.join(lacking[:5])}"
            f"{'...' if len(lacking) > 5 else ''}. A shard is missing, or was made from other sources or by another "
            "compiler. To compile them here, run the same command without --merge"
        )
