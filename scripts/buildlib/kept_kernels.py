"""The kernels of all GPUs of a build, kept where the emulator's own build finds them.

That one has no compiler for kernels, and of the kernel packages, of which each serves one GPU, only one is in its
environment. It makes handlers for the instructions of all of them.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from scripts.buildlib.sources import SOURCES

ROOT = Path(__file__).resolve().parents[2]


def kept_directory(cache: Path, root: Path = ROOT) -> Path:
    """Where the kernels made from the sources as they are now lie, as <gfx>/<name>.co with kernels.json."""
    digest = hashlib.sha256()
    files = {path for pattern in SOURCES["kernels"] for path in root.glob(pattern) if path.is_file()}
    for path in sorted(files):
        name = path.relative_to(root).as_posix()
        if not name.startswith("ck/composable_kernel/") and "__pycache__" not in name:
            digest.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return cache / "kept" / digest.hexdigest()[:16]


def find_kept(cache: Path, root: Path = ROOT) -> Path | None:
    """The directory of the kernels, or None where they were not built."""
    directory = kept_directory(cache, root)
    return directory if directory.is_dir() else None


def keep_kernels(built: Path, gpus: Iterable[str], cache: Path, root: Path = ROOT) -> Path:
    """Copy what was built into the cache, all or nothing; another build's of the same sources is replaced."""
    directory = kept_directory(cache, root)
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="new-", dir=directory.parent) as scratch:
        fresh, stale = Path(scratch) / "fresh", Path(scratch) / "stale"
        for gfx in gpus:
            (fresh / gfx).mkdir(parents=True)
            for file in (built / gfx / "kernels.json", *sorted((built / gfx).glob("*.co"))):
                shutil.copyfile(file, fresh / gfx / file.name)
        if directory.exists():
            directory.rename(stale)
        fresh.rename(directory)
    return directory
