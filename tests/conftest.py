"""Point the tests at what the build installed, and choose the device: a supported AMD GPU, else the emulated one.

The compiled parts always come from build/env (the installed conda packages). The Python code comes from src/, and a
session fixture proves that build/env holds the same, so that the tests test what is installed.
"""

from __future__ import annotations

import filecmp
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = ROOT / "build" / "env"
EMULATED_GPU = "gfx1201"
BUILD_FIRST = "run ./pixiw run build first"


def installed_package() -> Path | None:
    """The Python package inside build/env, or None before the first build."""
    return next(iter(sorted(ENVIRONMENT.glob("lib/python3.*/site-packages/flash_attn_rocm"))), None)


def _point_at_installed_files() -> None:
    package = installed_package()
    if package is None:
        return
    os.environ.setdefault("FLASH_ATTN_ROCM_LIBRARY", str(package / "lib" / "libflash_attn_rocm.so"))
    os.environ.setdefault("FLASH_ATTN_ROCM_KERNELS", str(ENVIRONMENT / "share" / "flash_attn_rocm"))
    os.environ.setdefault("FLASH_ATTN_ROCM_EMULATOR", str(ENVIRONMENT / "lib" / "flash_attn_rocm" / "emulator"))


_point_at_installed_files()


@pytest.fixture(scope="session")
def installed() -> Path:
    """The installed Python package, proved to be the same code as src/."""
    package = installed_package()
    if package is None:
        pytest.fail(f"nothing is installed in {ENVIRONMENT}; {BUILD_FIRST}")
    source = ROOT / "src" / "flash_attn_rocm"
    files = [str(path.relative_to(source)) for path in source.rglob("*") if path.suffix in {".py", ".toml"}]
    _, changed, absent = filecmp.cmpfiles(source, package, files, shallow=False)
    if stale := sorted(changed + absent):
        pytest.fail(f"build/env is older than src/: {stale}; {BUILD_FIRST}")
    return package


@pytest.fixture(scope="session")
def amd_gpu() -> bool:
    """Whether a torch for ROCm sees a GPU that the package supports: then kernels run on it instead of the emulator."""
    if not Path("/dev/kfd").exists():
        return False
    import torch

    from flash_attn_rocm.archs import packaged_archs

    if torch.version.hip is None or not torch.cuda.is_available():
        return False
    return torch.cuda.get_device_properties(0).gcnArchName.split(":")[0] in packaged_archs()


@pytest.fixture
def kernel_device(installed: Path, amd_gpu: bool, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The torch device on which the CK kernels run: "cuda" on a supported AMD GPU, else "cpu" on the emulated GPU."""
    monkeypatch.setenv("FLASH_ATTN_ROCM_BACKEND", "ck")
    if amd_gpu:
        yield "cuda"
    else:
        monkeypatch.setenv("FLASH_ATTN_ROCM_EMULATE", EMULATED_GPU)
        yield "cpu"
