"""Where the emulated runtime, its test kernels and the CK kernels are; nothing is compiled here."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from flash_attn_rocm.archs import load_archs
from tests.conftest import BUILD_FIRST, ENVIRONMENT, ROOT
from tests.isa.hip_runtime import Hip

GFX = "gfx1201"
RDNA = (GFX, "gfx1100", "gfx1151", "gfx1153")  # GPUs that run the kernels of tests/isa/kernels/rdna
# What the emulated runtime of these tests shows, in this order: every GPU.
DEVICES = (*RDNA, *sorted(load_archs().keys() - set(RDNA)))


@cache
def has(gpu: str, feature: str) -> bool:
    """Whether the GPU's test kernels have HAS_<feature>: what kernels/<gpu>/target.inc sets."""
    target = ROOT / "tests/isa/kernels" / gpu / "target.inc"
    return f".set HAS_{feature}, 1\n" in target.read_text(encoding="utf-8")


def emulator_directory() -> Path | None:
    """The emulator directory: the environment variable, else the installed one."""
    chosen = os.environ.get("FLASH_ATTN_ROCM_EMULATOR")
    directory = Path(chosen) if chosen else ENVIRONMENT / "lib" / "flash_attn_rocm" / "emulator"
    return directory if (directory / "libamdhip64.so").exists() else None


def kernel_directories() -> list[Path]:
    text = os.environ.get("FLASH_ATTN_ROCM_KERNELS")
    paths = [Path(part) for part in text.split(os.pathsep)] if text else [ROOT / "build/kernels"]
    return [path for path in paths if (path / GFX / "kernels.json").exists()]


@pytest.fixture(scope="session")
def emulator() -> Path:
    directory = emulator_directory()
    if directory is None:
        pytest.fail(f"no emulated HIP runtime; {BUILD_FIRST}")
    return directory


@pytest.fixture(scope="session")
def hip(emulator: Path, tmp_path_factory: pytest.TempPathFactory) -> Hip:
    """The emulated runtime, in this process: a copy, because it reads its devices once and other tests show one GPU."""
    directory = tmp_path_factory.mktemp("emulator")
    shutil.copy(emulator / "libamdhip64.so", directory)
    (directory / "decoded").symlink_to(emulator / "decoded")
    runtime = Hip(directory / "libamdhip64.so")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLASH_ATTN_ROCM_EMULATE", ",".join(DEVICES))
        runtime.call("hipInit", 0)
    return runtime


@pytest.fixture(params=RDNA)
def rdna(request: pytest.FixtureRequest, hip: Hip) -> Iterator[str]:
    """An RDNA GPU, current while the test runs."""
    gpu: str = request.param
    hip.call("hipSetDevice", DEVICES.index(gpu))
    yield gpu
    hip.call("hipSetDevice", 0)


@pytest.fixture(scope="session")
def isa_kernels(emulator: Path) -> Path:
    """Code object of the assembled test kernels' directory."""
    directory = emulator / "isa"
    if not directory.is_dir():
        pytest.fail(f"{emulator} has no test kernels; {BUILD_FIRST}")
    return directory


@pytest.fixture(scope="session")
def ck_manifest() -> tuple[Path, dict[str, Any]]:
    """Directory and contents of the gfx1201 kernels.json."""
    directories = kernel_directories()
    if not directories:
        pytest.fail(f"no {GFX}/kernels.json; {BUILD_FIRST}")
    directory = directories[0] / GFX
    return directory, json.loads((directory / "kernels.json").read_text())


@pytest.fixture(params=DEVICES[1:])
def other_manifest(
    request: pytest.FixtureRequest, hip: Hip, ck_manifest: tuple[Path, dict[str, Any]]
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Directory and contents of the kernels.json of each other GPU, which is current meanwhile."""
    directory = ck_manifest[0].with_name(request.param)
    if not (directory / "kernels.json").exists():
        pytest.fail(f"no kernels in {directory}; {BUILD_FIRST}")
    hip.call("hipSetDevice", DEVICES.index(request.param))
    yield directory, json.loads((directory / "kernels.json").read_text())
    hip.call("hipSetDevice", 0)
