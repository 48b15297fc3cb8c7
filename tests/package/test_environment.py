"""build/env, the environment that the build installed, used the way a stranger's shell would."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from flash_attn_rocm.archs import load_archs


def _run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """Without any variable of this environment, like `env -i`."""
    return subprocess.run([str(word) for word in command], env={}, cwd="/", capture_output=True, text=True, check=False)


def test_python_and_the_package_work_without_activation(environment: Path) -> None:
    code = "import ssl, sqlite3, flash_attn_rocm; print(flash_attn_rocm.__version__, flash_attn_rocm.__file__)"
    done = _run(environment / "bin" / "python", "-c", code)
    assert done.returncode == 0, done.stderr
    version, path = done.stdout.rstrip("\n").split(" ", 1)
    assert version == "0.1.0"
    assert Path(path).is_relative_to(environment)


def test_requirements_are_satisfied_for_pip(environment: Path) -> None:
    # The environment has no pip of its own; this one looks into it.
    done = _run(sys.executable, "-m", "pip", "--python", environment / "bin" / "python", "check")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("program", ["flash-attn-rocm", "llvm-objdump"])
def test_programs_start(environment: Path, program: str) -> None:
    done = _run(environment / "bin" / program, "--version")
    assert done.returncode == 0, done.stderr
    assert "rattler-build" not in (environment / "bin" / "flash-attn-rocm").read_text(encoding="utf-8")


def test_installed_packages_are_those_in_dist(environment: Path, dist: dict[str, Path]) -> None:
    installed = {}
    for path in (environment / "conda-meta").glob("flash-attn-rocm*.json"):
        record = json.loads(path.read_text(encoding="utf-8"))
        installed[record["name"]] = record["fn"]
    assert installed == {name: path.name for name, path in dist.items()}


def test_kernels_of_every_gpu_lie_side_by_side(environment: Path) -> None:
    found = {path.parent.name for path in (environment / "share" / "flash_attn_rocm").glob("*/kernels.json")}
    assert found == set(load_archs())


@pytest.mark.parametrize("gfx", load_archs())
def test_every_kernel_of_a_gpu_was_verified(environment: Path, gfx: str) -> None:
    """By the build, in this environment: one call at least for each, backward too where that is the default."""
    report = json.loads((environment.parent / "verify" / f"{gfx}-emulated.json").read_text(encoding="utf-8"))
    assert (report["backend"], report["gfx"], report["passed"]) == ("ck", gfx, True)
    assert report["kernels_not_executed"] == []
    directions = {"backward" if case["case"]["backward"] else "forward" for case in report["cases"]}
    assert directions >= ({"forward", "backward"} if load_archs()[gfx].backward_backend == "ck" else {"forward"})


def test_no_compiler_is_installed(environment: Path) -> None:
    assert not [name for name in ("clang", "clang++", "g++", "hipcc") if (environment / "bin" / name).exists()]
    assert not list((environment / "conda-meta").glob("hip-clang*"))
