"""One compile, as ninja runs it: take the code object from the cache, or compile it and put it there.

Usage: compile_job.py JOB.json. Beside the job file it leaves a depfile for ninja, UNIT.stats.json (what it took) and,
after a failure, UNIT.failed.json (the command and everything the compiler said).
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from scripts.buildlib.cache import (  # noqa: E402
    CompileCache,
    Roots,
    escape_depfile,
    hash_file,
    make_key,
    parse_depfile,
    replacing,
)
from scripts.buildlib.launcher import CACHE_BUSTER  # noqa: E402


@dataclass(frozen=True)
class Job:
    """Everything one compile needs. `identity` and `flags` name no path and make the key; `command` is what runs,
    behind `launcher` if there is one."""

    unit: str
    source: str
    output: str
    work: str
    command: tuple[str, ...]
    flags: tuple[str, ...]
    identity: dict[str, str]
    roots: dict[str, str]
    cache: str
    launcher: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The job file's text; equal jobs have equal text."""
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"

    def work_file(self, suffix: str) -> Path:
        """A file of this job in the work directory."""
        return Path(self.work) / f"{self.unit}{suffix}"


def load_job(path: Path) -> Job:
    """Read a job file."""
    return Job(**json.loads(path.read_text(encoding="utf-8")))


def job_key(job: Job) -> str:
    """The cache key of a job."""
    return make_key({"source": hash_file(Path(job.source)), "flags": list(job.flags), "identity": job.identity})


def job_roots(job: Job) -> Roots:
    """The directories that headers are named relative to."""
    return Roots({name: Path(path) for name, path in job.roots.items()})


def _children_usage() -> tuple[float, float]:
    """CPU seconds and peak MiB of finished child processes; zeros where the system does not say."""
    try:
        import resource
    except ImportError:
        return 0.0, 0.0
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def _write_depfile(job: Job, headers: list[str]) -> None:
    escaped = [escape_depfile(path) for path in (job.output, *headers)]
    job.work_file(".d").write_text(f"{escaped[0]}: {' '.join(escaped[1:])}\n", encoding="utf-8")


def _dependency_flags(depfile: Path) -> list[str]:
    """-MD -MF for a device-only compile: clang 22's driver drops -MF there, its front end does not."""
    words = ("-dependency-file", str(depfile), "-sys-header-deps", "-MT", "out")
    return [flag for word in words for flag in ("-Xclang", word)]


def _now_on_disk(job: Job) -> int:
    """The time a file written now gets: file systems round it down, so the clock would be too late."""
    stamp = job.work_file(".started")
    stamp.touch()
    return stamp.stat().st_mtime_ns


def _run(command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **variables}
    return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, env=env)


def _run_compiler(job: Job, command: list[str], depfile: Path) -> subprocess.CompletedProcess[str]:
    """Compile and write the depfile."""
    if not job.launcher:
        return _run([*command, *_dependency_flags(depfile)])
    # sccache takes neither clang's own dependency flags nor, without -c, a compile at all; with -c the device code is
    # linked just the same. So the dependencies come from the preprocessor alone, a second or two.
    done = _run([*job.command, job.source, "-E", "-o", os.devnull, *_dependency_flags(depfile)])
    if done.returncode:
        return done
    return _run([*job.launcher, *command, "-c"], **{CACHE_BUSTER: make_key({"identity": job.identity})})


def _compile(job: Job, cache: CompileCache, key: str, roots: Roots) -> int:
    depfile = job.work_file(".clang.d")
    compiled = job.work_file(".co")
    command = [*job.command, job.source, "-o", str(compiled)]
    started_ns = _now_on_disk(job)
    done = _run_compiler(job, command, depfile)
    if done.returncode:
        failure = {
            "time_ns": time.time_ns(), "code": done.returncode, "command": shlex.join(done.args), "output": done.stderr,
        }  # fmt: skip
        job.work_file(".failed.json").write_text(json.dumps(failure), encoding="utf-8")
        return 1
    with replacing(Path(job.output)) as temporary:
        shutil.move(compiled, temporary)
    headers = [path for path in parse_depfile(depfile.read_text(encoding="utf-8")) if path != job.source]
    cpu_s, _ = _children_usage()
    # A file that was written meanwhile may be hashed as another than the compiler read.
    if all(Path(path).stat().st_mtime_ns < started_ns for path in (job.source, *headers)):
        cache.store(key, roots, headers, Path(job.output), cpu_s)
    _write_depfile(job, headers)
    return 0


def run_job(job: Job) -> int:
    """Do one compile; the exit code is 0 or 1."""
    started = time.monotonic()
    job.work_file(".failed.json").unlink(missing_ok=True)
    cache, roots, key = CompileCache(Path(job.cache)), job_roots(job), job_key(job)
    hit = cache.find(key, roots)
    if hit is not None:
        with replacing(Path(job.output)) as temporary:
            shutil.copyfile(hit.path, temporary)
        _write_depfile(job, [str(path) for path in hit.headers])
        code = 0
    else:
        code = _compile(job, cache, key, roots)
    cpu_s, peak_mib = _children_usage()
    stats = {"cached": hit is not None, "cpu_s": cpu_s, "peak_mib": peak_mib, "wall_s": time.monotonic() - started}
    job.work_file(".stats.json").write_text(json.dumps(stats), encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(run_job(load_job(Path(sys.argv[1]))))
