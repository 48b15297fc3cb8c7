"""A conda package to be made from existing files, its content key, and the store that makes each only once."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import rattler_build

from scripts.buildlib.cache import replacing

SUBDIR = "linux-64"
FORMAT = "3"  # part of every key: raise it when a repacked package's layout changes

# Level 3 writes torch's 750 MB in a fraction of the default's time; the larger file never leaves the machine.
_COMPRESSION_LEVEL = 3


@dataclass(frozen=True)
class Repack:
    """One package: identity, requirements, and how to fill a staging directory laid out like the prefix.

    `stage` gets an empty directory for files it must change, and returns (source, path in the prefix) for every file.
    """

    name: str
    version: str
    identity: str
    depends: tuple[str, ...]
    stage: Callable[[Path], Iterable[tuple[Path, str]]]

    @property
    def key(self) -> str:
        """Content key: the same inputs give the same file name on every machine."""
        text = "\n".join((FORMAT, self.name, self.version, self.identity, *self.depends))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def build_string(self) -> str:
        return f"h{self.key}_0"

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}-{self.build_string}.conda"


def make_package(repack: Repack, store: Path) -> Path:
    """The package's file in the store, made now if it is not there yet."""
    target = store / repack.file_name
    if target.exists():
        return target
    store.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=store, prefix=f".{repack.name}-") as scratch:
        staging = Path(scratch) / "staging"
        staging.mkdir()
        entries = [rattler_build.FileEntry.from_paths(source, path) for source, path in repack.stage(staging)]
        output = rattler_build.assemble_package(
            repack.name,
            repack.version,
            SUBDIR,
            repack.build_string,
            Path(scratch) / "out",
            files=entries,
            depends=repack.depends,
            compression_level=_COMPRESSION_LEVEL,
            compression_threads=os.cpu_count(),
            detect_prefix=False,
        )
        output.path.replace(target)
    return target


def link_or_copy(source: Path, target: Path) -> None:
    """Hard link where the file system allows it, else copy."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        # Whole or not at all: a store trusts every file that it holds.
        with replacing(target) as temporary:
            shutil.copy2(source, temporary)


def staged_files(staging: Path) -> list[tuple[Path, str]]:
    """Every file and symbolic link below a staging directory that is laid out like the prefix."""
    found = []
    for folder, directories, names in os.walk(staging):
        links = [name for name in directories if (Path(folder) / name).is_symlink()]
        for name in (*names, *links):
            path = Path(folder) / name
            found.append((path, path.relative_to(staging).as_posix()))
    return sorted(found, key=lambda entry: entry[1])


def digest_entries(entries: Iterable[tuple[Path, str]]) -> str:
    """One hash over the places in the prefix and the bytes of files that are to be packed."""
    total = hashlib.sha256()
    for source, target in sorted(entries, key=lambda entry: entry[1]):
        total.update(f"{target}\n{digest_files([source])}\n".encode())
    return total.hexdigest()


def digest_files(paths: Iterable[Path]) -> str:
    """One hash over the bytes of several files, in the order given."""
    total = hashlib.sha256()
    for path in paths:
        with path.open("rb") as stream:
            total.update(hashlib.file_digest(stream, "sha256").digest())
    return total.hexdigest()
