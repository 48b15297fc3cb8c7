"""Build the kernels: plan, render, compile through ninja and the cache, and write each GPU's kernels.json."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from ck.manifest import make_manifest, write_manifest
from ck.overlay import find_overlay
from ck.plan import Unit, plan_units
from ck.render import render_unit
from ck.source import CkSource, choose_source
from flash_attn_rocm.archs import Arch
from flash_attn_rocm.console import make_console
from scripts.buildlib import compile_job
from scripts.buildlib.cache_root import cache_root
from scripts.buildlib.commands import find_program
from scripts.buildlib.compile_flags import device_flags, path_flags
from scripts.buildlib.compile_job import Job
from scripts.buildlib.compiler_identity import identify_compiler
from scripts.buildlib.compiler_output import first_error
from scripts.buildlib.errors import BuildError, CompileError
from scripts.buildlib.jobs import available_cpus, available_mib, choose_jobs, estimate_cpu_s
from scripts.buildlib.ninja_file import render_ninja, write_if_changed
from scripts.buildlib.progress import NINJA_STATUS, Estimate, follow
from scripts.buildlib.shards import KERNEL_CACHE, Shard, share_results, take_results, units_of_shard
from scripts.buildlib.toolchain import find_toolchain
from scripts.buildlib.toolchains.layout import Toolchain

ROOT = Path(__file__).resolve().parents[2]
DEVICE_DIR = ROOT / "csrc" / "device"
WORK_NAME = "work"
_GET_NINJA = "install it: pip install ninja, or apt-get install ninja-build"


@dataclass(frozen=True)
class KernelRequest:
    """What to build. Code objects and kernels.json of a GPU go to `out`/<gfx>; `out`/work holds sources and logs.

    A part of a plan (`shard`) gets no kernels.json, which names every code object of its GPU.
    """

    profile: str
    archs: tuple[Arch, ...]
    out: Path
    hdims: tuple[int, ...] | None = None
    max_jobs: int | None = None
    launcher: tuple[str, ...] = ()  # put before every compiler command
    shard: Shard | None = None  # only this part; its results are left in `out`/cache for `merge`
    merge: tuple[Path, ...] = ()  # `out`/cache of every part: nothing is compiled


@dataclass(frozen=True)
class KernelBuild:
    """What was built: kernels.json per gfx, and per unit whether it was compiled, cached or up to date already."""

    manifests: dict[str, Path]
    kernels: int
    compiled: tuple[str, ...]
    cached: tuple[str, ...]
    up_to_date: tuple[str, ...]
    cpu_s: float
    wall_s: float
    jobs: int

    def summary(self) -> str:
        """One line for people."""
        return (
            f"{self.kernels} kernels in {len(self.compiled) + len(self.cached) + len(self.up_to_date)} code objects: "
            f"{len(self.compiled)} compiled ({self.cpu_s:.0f} CPU-s), {len(self.cached)} from the cache, "
            f"{len(self.up_to_date)} up to date; {self.wall_s:.1f} s with {self.jobs} jobs"
        )


def plan_request(request: KernelRequest) -> dict[Arch, tuple[Unit, ...]]:
    """Every translation unit of a request, per GPU; of a shard, its own.

    Raises:
        RequestError, PlanError: no such profile or head dim, or a table row that cannot be built.
    """
    plan = {arch: plan_units(arch, request.profile, request.hdims) for arch in request.archs}
    if request.shard is None:
        return plan
    mine = set(units_of_shard([unit for units in plan.values() for unit in units], request.shard))
    return {arch: tuple(unit for unit in units if unit in mine) for arch, units in plan.items()}


def find_includes(arch: Arch, ck: CkSource, work: Path) -> dict[str, Path]:
    """The directories of headers for a GPU's kernels, by a name for each, in the order of the search.

    What CK lacks for a family is found before CK's own; `work` as in `find_overlay`.
    """
    overlay = find_overlay(arch.family, ck.include, work)
    return {"device": DEVICE_DIR, **({"overlay": overlay} if overlay is not None else {}), "ck": ck.include}


def make_job(
    arch: Arch,
    unit: Unit,
    request: KernelRequest,
    toolchain: Toolchain,
    includes: Mapping[str, Path],
    identity: dict[str, str],
) -> Job:
    """The compile of one unit."""
    work = request.out / WORK_NAME / arch.gfx
    flags = device_flags(arch)
    return Job(
        unit=unit.name,
        source=str(work / unit.source_name),
        output=str(request.out / arch.gfx / unit.object_name),
        work=str(work),
        command=(str(toolchain.clangxx), *flags, *path_flags(toolchain, includes, work)),
        flags=tuple(flags),
        identity=identity,
        roots={
            **{name: str(path) for name, path in includes.items()},
            "hip": str(toolchain.hip_include),
            "clang": str(toolchain.resource_dir),
            # Resolved: of /usr/bin/clang++ it would be /usr, whose headers another copy of this clang reads as well.
            "compiler": str(toolchain.clangxx.resolve().parents[1]),
        },
        cache=str(cache_root() / KERNEL_CACHE),
        launcher=request.launcher,
    )


def _write_inputs(jobs: Mapping[Unit, Job], work: Path) -> None:
    for unit, job in jobs.items():
        write_if_changed(Path(job.source), render_unit(unit))
        write_if_changed(job.work_file(".job.json"), job.to_json())
        job.work_file(".stats.json").unlink(missing_ok=True)
        job.work_file(".failed.json").unlink(missing_ok=True)
        Path(job.output).parent.mkdir(parents=True, exist_ok=True)
    longest_first = sorted(jobs, key=lambda unit: (-estimate_cpu_s(unit), unit.name))
    write_if_changed(
        work / "build.ninja", render_ninja([jobs[unit] for unit in longest_first], sys.executable, compile_job.__file__)
    )


def _raise_failure(jobs: Sequence[Job], messages: Sequence[str]) -> None:
    failures = []
    for job in jobs:
        path = job.work_file(".failed.json")
        if path.exists():
            failures.append((json.loads(path.read_text(encoding="utf-8")), job))
    if not failures:
        raise BuildError("ninja failed:\n" + "".join(messages))
    failure, job = min(failures, key=lambda item: int(item[0]["time_ns"]))
    log = job.work_file(".log")
    log.write_text(failure["output"], encoding="utf-8")
    raise CompileError(job.unit, first_error(failure["output"], failure["code"]), failure["command"], log)


def run_ninja(work: Path, jobs: Mapping[Unit, Job], job_count: int, console: Console) -> None:
    """Compile what is out of date.

    Raises:
        CompileError: with the first compile that failed.
    """
    command = [str(find_program("ninja", _GET_NINJA)), "-C", str(work), "-j", str(job_count)]
    estimate = Estimate({unit.name: estimate_cpu_s(unit) for unit in jobs}, job_count)
    kernels = {unit.name: len(unit.specs) for unit in jobs}
    works = {unit.name: Path(job.work) for unit, job in jobs.items()}
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "NINJA_STATUS": NINJA_STATUS},
    ) as process:
        assert process.stdout is not None
        messages = follow(process.stdout, console, works, estimate, kernels)
    if process.returncode:
        _raise_failure(list(jobs.values()), messages)


def _collect(jobs: Mapping[Unit, Job]) -> tuple[list[str], list[str], list[str], float]:
    compiled: list[str] = []
    cached: list[str] = []
    up_to_date: list[str] = []
    cpu_s = 0.0
    for unit, job in jobs.items():
        path = job.work_file(".stats.json")
        if not path.exists():
            up_to_date.append(unit.name)
            continue
        stats = json.loads(path.read_text(encoding="utf-8"))
        (cached if stats["cached"] else compiled).append(unit.name)
        cpu_s += 0.0 if stats["cached"] else stats["cpu_s"]
    return compiled, cached, up_to_date, cpu_s


def _write_manifests(
    request: KernelRequest, plan: Mapping[Arch, tuple[Unit, ...]], compiler: str, ck: str
) -> dict[str, Path]:
    manifests = {}
    for arch, units in plan.items():
        directory = request.out / arch.gfx
        wanted = {unit.object_name for unit in units}
        for stale in directory.glob("*.co"):
            if stale.name not in wanted:
                stale.unlink()
        manifest = make_manifest(directory, arch, request.profile, units, compiler, ck)
        manifests[arch.gfx] = write_manifest(directory, manifest)
    return manifests


def build_kernels(
    request: KernelRequest,
    console: Console | None = None,
    toolchain: Toolchain | None = None,
    ck: CkSource | None = None,
) -> KernelBuild:
    """Build a request's kernels; finds the toolchain and CK's source unless they are given.

    Raises:
        BuildError, CkError: a bad request, no toolchain, no CK source, or a compile that failed.
    """
    console = console or make_console()
    started = time.monotonic()
    plan = plan_request(request)
    toolchain = toolchain or find_toolchain([arch.gfx for arch in request.archs])
    ck = ck or choose_source(cache_root())
    identity = identify_compiler(toolchain)
    work = request.out / WORK_NAME
    jobs = {}
    for arch, units in plan.items():
        includes = find_includes(arch, ck, work / arch.gfx)
        jobs.update({unit: make_job(arch, unit, request, toolchain, includes, identity) for unit in units})
    _write_inputs(jobs, work)
    if request.merge:
        take_results(request.merge, list(jobs.values()))
    job_count, reason = choose_jobs(list(jobs), available_cpus(), available_mib(), request.max_jobs)
    kernels = sum(len(unit.specs) for unit in jobs)
    console.print(
        f"{kernels} kernels of profile {request.profile}, {ck.label}, {toolchain.clang_version}", style="bold"
    )
    console.print(f"{job_count} compiles at once, limited by {reason}")
    if jobs:  # there may be more shards than units, and ninja wants something to do
        run_ninja(work, jobs, job_count, console)
    if request.shard is None:
        manifests = _write_manifests(request, plan, toolchain.clang_version, ck.label)
    else:
        manifests = {}
        share_results(request.out, list(jobs.values()))
    compiled, cached, up_to_date, cpu_s = _collect(jobs)
    wall_s = time.monotonic() - started
    return KernelBuild(manifests, kernels, tuple(compiled), tuple(cached), tuple(up_to_date), cpu_s, wall_s, job_count)
