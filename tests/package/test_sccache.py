"""A real compile through a real sccache, its cache on this machine: the second machine compiles nothing."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flash_attn_rocm.archs import load_arch
from scripts.buildlib.compile_flags import device_flags, path_flags
from scripts.buildlib.compile_job import Job, run_job
from scripts.buildlib.compiler_identity import identify_compiler
from scripts.buildlib.launcher import find_launcher
from scripts.buildlib.toolchain import find_toolchain

GFX = "gfx1201"
SOURCE = """
#include "factor.hpp"
extern "C" __attribute__((global)) void scale(float* values) { values[__builtin_amdgcn_workitem_id_x()] *= kFactor; }
"""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def sccache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in [name for name in os.environ if name.startswith("SCCACHE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))  # no configuration file of this machine's
    monkeypatch.setenv("SCCACHE_DIR", str(tmp_path / "sccache"))
    monkeypatch.setenv("SCCACHE_SERVER_PORT", str(_free_port()))
    (program,) = find_launcher()
    yield program
    subprocess.run([program, "--stop-server"], capture_output=True, check=False)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    arch, toolchain = load_arch(GFX), find_toolchain([GFX])
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "factor.hpp").write_text("constexpr float kFactor = 3.0f;\n")
    source = tmp_path / "scale.hip"
    source.write_text(SOURCE)
    flags, includes = device_flags(arch), {"include": tmp_path / "include"}
    return Job(
        unit="scale",
        source=str(source),
        output="",
        work="",
        command=(str(toolchain.clangxx), *flags, *path_flags(toolchain, includes, tmp_path)),
        flags=tuple(flags),
        identity=identify_compiler(toolchain),
        roots={"include": str(tmp_path / "include")},
        cache="",
    )


def _compile(job: Job, machine: Path, launcher: tuple[str, ...] = ()) -> bytes:
    """Compile with nothing in this project's own cache; the code object."""
    shutil.rmtree(machine, ignore_errors=True)
    machine.mkdir()
    placed = replace(job, work=str(machine), output=str(machine / "out.co"), cache=str(machine / "cache"))
    assert run_job(replace(placed, launcher=launcher)) == 0
    assert str(Path(job.roots["include"]) / "factor.hpp") in (machine / "scale.d").read_text()
    return (machine / "out.co").read_bytes()


def _counts(program: str) -> tuple[int, int]:
    """Hits and misses of the server."""
    done = subprocess.run(
        [program, "--show-stats", "--stats-format", "json"], capture_output=True, text=True, check=True
    )
    stats: dict[str, Any] = json.loads(done.stdout)["stats"]
    assert stats["not_cached"] == {}
    return tuple(sum(stats[name]["counts"].values()) for name in ("cache_hits", "cache_misses"))  # type: ignore[return-value]


def test_one_compile_serves_every_machine(job: Job, sccache: str, tmp_path: Path) -> None:
    direct = _compile(job, tmp_path / "direct")
    launched = [_compile(job, tmp_path / "machine", (sccache,)) for _ in range(2)]
    assert launched == [direct, direct]
    assert _counts(sccache) == (1, 1)
    # What sccache does not look at itself: other device bitcode or another linker.
    other = replace(job, identity={**job.identity, "bitcode": "other"})
    assert _compile(other, tmp_path / "machine", (sccache,)) == direct
    assert _counts(sccache) == (1, 2)
    Path(job.roots["include"], "factor.hpp").write_text("constexpr float kFactor = 5.0f;\n")
    assert _compile(job, tmp_path / "machine", (sccache,)) != direct
    assert _counts(sccache) == (1, 3)
