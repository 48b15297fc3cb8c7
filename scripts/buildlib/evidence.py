"""CK kernels of GPUs that get no kernel package: what shows that the emulated GPU runs real kernels of their family.

The build compiles them, few and cached, and puts them into the cache under a name made from their sources. There the
emulator's own build, which has no compiler for kernels, finds them and makes handlers for their instructions.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

from scripts.buildlib.sources import SOURCES

ROOT = Path(__file__).resolve().parents[2]
# The head dims of each: all of them would cost a cold build a CPU minute a GPU.
GPUS = {"gfx1100": (64, 128), "gfx90a": (64,), "gfx942": (64, 128), "gfx950": (128,)}
PROFILE = "evidence"


def evidence_directory(cache: Path, root: Path = ROOT) -> Path:
    """Where the kernels made from the sources as they are now lie, as <gfx>/<name>.co with kernels.json."""
    digest = hashlib.sha256()
    files = {path for pattern in SOURCES["kernels"] for path in root.glob(pattern) if path.is_file()}
    for path in sorted(files):
        name = path.relative_to(root).as_posix()
        if not name.startswith("ck/composable_kernel/") and "__pycache__" not in name:
            digest.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return cache / "evidence" / digest.hexdigest()[:16]


def find_evidence(cache: Path, root: Path = ROOT) -> Path | None:
    """The directory of the kernels, or None where they were not built."""
    directory = evidence_directory(cache, root)
    return directory if directory.is_dir() else None


def keep_evidence(built: Path, cache: Path, root: Path = ROOT) -> Path:
    """Copy what was built into the cache, all or nothing; what other compilers made of the same sources is replaced."""
    directory = evidence_directory(cache, root)
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="new-", dir=directory.parent) as scratch:
        fresh, stale = Path(scratch) / "fresh", Path(scratch) / "stale"
        for gfx in GPUS:
            (fresh / gfx).mkdir(parents=True)
            for file in (built / gfx / "kernels.json", *sorted((built / gfx).glob("*.co"))):
                shutil.copyfile(file, fresh / gfx / file.name)
        if directory.exists():
            directory.rename(stale)
        fresh.rename(directory)
    return directory
