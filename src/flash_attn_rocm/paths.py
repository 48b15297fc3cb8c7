"""Where the package's binary parts are: host library, kernels, emulated HIP runtime."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

from flash_attn_rocm import environment
from flash_attn_rocm.errors import BackendChoiceError, LibraryNotFoundError

PACKAGE_DIR = Path(__file__).resolve().parent
_WINDOWS = sys.platform == "win32"


def find_prefix(package_dir: Path, fallback: Path) -> Path:
    """The environment a package directory belongs to: its nearest parent with our data, else `fallback`."""
    for parent in package_dir.parents:
        if (parent / "share" / "flash_attn_rocm").is_dir() or (parent / "lib" / "flash_attn_rocm").is_dir():
            return parent
    return fallback


@cache
def prefix() -> Path:
    """The environment this package is installed in."""
    return find_prefix(PACKAGE_DIR, Path(sys.prefix))


def kernel_roots() -> tuple[Path, ...]:
    """Directories that hold `<gfx>/kernels.json`: FLASH_ATTN_ROCM_KERNELS, else the environment's share directory."""
    if listed := os.environ.get(environment.KERNELS):
        return tuple(Path(part) for part in listed.split(os.pathsep) if part)
    return (prefix() / "share" / "flash_attn_rocm",)


def find_manifests() -> dict[str, Path]:
    """kernels.json of every GPU whose kernels are installed, by gfx name; the first directory that has one wins.

    Raises:
        BackendChoiceError: a directory cannot be searched (no permission, name too long).
    """
    found: dict[str, Path] = {}
    for root in kernel_roots():
        try:
            root.stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            name = str(root) if len(str(root)) <= 200 else f"{str(root)[:200]}..."
            raise BackendChoiceError(
                f"kernel directory {name} cannot be searched: {error.strerror}. "
                f"Set {environment.KERNELS} to directories that hold <gfx>/kernels.json, or unset it"
            ) from error
        for manifest in sorted(root.glob("*/kernels.json")):
            found.setdefault(manifest.parent.name, manifest)
    return found


def library_path() -> Path:
    """The host library: FLASH_ATTN_ROCM_LIBRARY, else the file inside the package; it need not exist."""
    if override := os.environ.get(environment.LIBRARY):
        return Path(override)
    return PACKAGE_DIR / "lib" / ("flash_attn_rocm.dll" if _WINDOWS else "libflash_attn_rocm.so")


def emulator_dir() -> Path:
    """The directory of the emulated HIP runtime: FLASH_ATTN_ROCM_EMULATOR, else in the environment."""
    if override := os.environ.get(environment.EMULATOR):
        return Path(override)
    return prefix() / "lib" / "flash_attn_rocm" / "emulator"


def hip_library_path() -> Path | None:
    """The HIP runtime to use: FLASH_ATTN_ROCM_HIP_LIBRARY, the emulated one if asked for, else None (search for it).

    Raises:
        LibraryNotFoundError: an emulated GPU is asked for and the emulated runtime is not installed.
    """
    if override := os.environ.get(environment.HIP_LIBRARY):
        return Path(override)
    if not environment.emulated_gpus():
        return None
    path = emulator_dir() / ("amdhip64.dll" if _WINDOWS else "libamdhip64.so")
    if not path.is_file():
        raise LibraryNotFoundError(
            "emulated HIP runtime",
            path,
            "FLASH_ATTN_ROCM_EMULATE is set: install it (conda install flash-attn-rocm-emulator), "
            "point FLASH_ATTN_ROCM_EMULATOR at its directory, or unset FLASH_ATTN_ROCM_EMULATE",
        )
    return path
