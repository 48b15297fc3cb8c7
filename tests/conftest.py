"""Point the tests at what the build installed, and choose the device: a supported AMD GPU, else the emulated one.

The compiled parts come from build/env (the installed conda packages) unless a variable names others. The Python code
comes from src/, and a session fixture proves that build/env was made from the sources as they are now.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from scripts.buildlib.sources import changed_since_build

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = ROOT / "build" / "env"
EMULATED_GPU = "gfx1201"
BUILD_FIRST = "run ./pixiw run build first"
# Which stage of the build made what each variable names.
_STAGE_VARIABLES = {
    "host": "FLASH_ATTN_ROCM_LIBRARY",
    "kernels": "FLASH_ATTN_ROCM_KERNELS",
    "emulator": "FLASH_ATTN_ROCM_EMULATOR",
}


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
def installed(request: pytest.FixtureRequest) -> Path:
    """The installed Python package, proved to be made from the sources as they are now."""
    package = installed_package()
    if package is None:
        pytest.fail(f"nothing is installed in {ENVIRONMENT}; {BUILD_FIRST}")
    request.getfixturevalue("fresh")
    return package


@pytest.fixture(scope="session")
def fresh() -> None:
    """Fail when what the tests use of build/env was made from other sources than those that are here now."""
    stages = [
        stage
        for stage, variable in _STAGE_VARIABLES.items()
        if Path(os.environ.get(variable, "/")).is_relative_to(ENVIRONMENT)
    ]
    if changed := changed_since_build(stages):
        more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
        pytest.fail(f"build/env is older than {', '.join(changed[:5])}{more}; {BUILD_FIRST}", pytrace=False)


@pytest.fixture(autouse=True)
def _fresh_where_installed_files_are_used(request: pytest.FixtureRequest) -> None:
    # Before the first build there is nothing stale: what then cannot run says so itself.
    folder = request.path.relative_to(ROOT / "tests").parts[0]
    if folder in ("api", "isa", "kernels") and installed_package() is not None:
        request.getfixturevalue("fresh")


def why_no_tests_on(gfx: str, manifests: Mapping[str, Path]) -> str | None:
    """None where a GPU's installed kernels cover every kind of forward call up to d128, else what is missing."""
    from flash_attn_rocm.inspection.coverage import CALLS, cover
    from flash_attn_rocm.kernel_manifest import read_manifest

    build = f"./pixiw run build --arch {gfx} --profile full"
    if gfx not in manifests:
        return f"its kernels are not installed: {build}"
    manifest = read_manifest(manifests[gfx])
    for call in CALLS:
        dims = cover(manifest["kernels"], call)
        padded = [re.match(r"1-(\d+)", dims.get(dtype, "")) for dtype in ("bf16", "fp16")]
        if call.direction == "forward" and not all(found and int(found[1]) >= 128 for found in padded):
            return f"its kernels (profile {manifest['profile']}) do not cover {call.name} up to d128: {build}"
    return None


@pytest.fixture(scope="session")
def amd_gpu() -> bool:
    """Whether a torch for ROCm sees a GPU with enough kernels: then they run on it instead of the emulator."""
    if not Path("/dev/kfd").exists():
        return False
    import torch

    from flash_attn_rocm import paths

    if torch.version.hip is None or not torch.cuda.is_available():
        return False
    gfx = torch.cuda.get_device_properties(0).gcnArchName.split(":")[0]
    if reason := why_no_tests_on(gfx, paths.find_manifests()):
        warnings.warn(f"the {gfx} is not tested, {EMULATED_GPU} is emulated instead: {reason}", stacklevel=1)
    return reason is None


@pytest.fixture
def kernel_device(installed: Path, amd_gpu: bool, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The torch device on which the CK kernels run: "cuda" on a supported AMD GPU, else "cpu" on the emulated GPU."""
    monkeypatch.setenv("FLASH_ATTN_ROCM_BACKEND", "ck")
    if amd_gpu:
        yield "cuda"
    else:
        monkeypatch.setenv("FLASH_ATTN_ROCM_EMULATE", EMULATED_GPU)
        yield "cpu"


@pytest.fixture(params=["ck", "sdpa"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The torch device of a test that runs on both backends: the CK kernels, as above, and torch's attention."""
    if request.param == "ck":
        return str(request.getfixturevalue("kernel_device"))
    monkeypatch.setenv("FLASH_ATTN_ROCM_BACKEND", "sdpa")
    return "cpu"
