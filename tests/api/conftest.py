"""Fixtures of the tests that run the host library against the fake HIP runtime."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.api.fake_runtime import Run, build_fake_hip, manifest, run_program, write_kernels


@pytest.fixture(scope="session")
def host_library() -> Path:
    """The built host library."""
    path = Path(os.environ.get("FLASH_ATTN_ROCM_LIBRARY", ""))
    if not path.is_file():
        pytest.fail(f"the host library is not built (FLASH_ATTN_ROCM_LIBRARY={path}); run ./pixiw run build first")
    return path


@pytest.fixture(scope="session")
def fake_hip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake HIP runtime."""
    return build_fake_hip(tmp_path_factory.mktemp("fake_hip"))


@pytest.fixture(scope="session")
def incomplete_hip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fake HIP runtime that lacks two functions."""
    return build_fake_hip(tmp_path_factory.mktemp("incomplete_hip"), incomplete=True)


RunFake = Callable[..., Run]


@pytest.fixture(scope="session")
def run_fake(host_library: Path, fake_hip: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFake:
    """Run a program in a fresh process with fake runtime and fake kernels of `gfx`; see fake_runtime.run_program."""
    root = tmp_path_factory.mktemp("runs")
    numbers = itertools.count()

    def run(
        program: str,
        *,
        document: dict[str, Any] | None = None,
        image: bytes | None = None,
        gfx: str = "gfx1201",
        **environment: str,
    ) -> Run:
        directory = root / str(next(numbers))
        document = manifest() if document is None else document
        if image is None:
            write_kernels(directory / "kernels", document, gfx=gfx)
        else:
            write_kernels(directory / "kernels", document, image, gfx)
        kernels = environment.pop("FLASH_ATTN_ROCM_KERNELS", str(directory / "kernels"))
        hip = environment.pop("FLASH_ATTN_ROCM_HIP_LIBRARY", str(fake_hip))
        return run_program(program, hip=Path(hip), kernels=Path(kernels), log=directory / "log", **environment)

    return run
