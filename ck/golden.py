"""AMD's own hand-written attention kernels from the pinned wheel: what the emulated GPU is tested with.

Nobody here wrote or compiled them, so that they run and match a reference says something about the emulator. They go
into no package: the emulator is built with handlers for their instructions, and the tests load them from the cache.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import zipfile
from pathlib import Path

from ck.errors import CkSourceError, HashMismatchError
from ck.wheel import Pin, check_wheel, download_wheel, load_pin


def golden_directory(cache: Path, pin: Pin) -> Path:
    """Where the code objects lie, as <gfx>/<name>.co. Another list of files is another directory."""
    listed = "".join(f"{file.name} {file.sha256}\n" for file in pin.golden)
    return cache / "ck" / f"{pin.directory_name}-golden-{hashlib.sha256(listed.encode()).hexdigest()[:12]}"


def unpack_golden(wheel: Path, pin: Pin, destination: Path) -> None:
    """Unpack the listed code objects, each checked against its own hash, all or nothing.

    Raises:
        CkSourceError: the wheel does not have one of them.
        HashMismatchError: the wheel, or a code object in it, is not the pinned one; nothing is unpacked.
    """
    check_wheel(wheel, pin)
    destination.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="golden-", dir=destination.parent) as scratch:
        tree = Path(scratch) / "tree"
        tree.mkdir()
        with zipfile.ZipFile(wheel) as archive:
            held = set(archive.namelist())
            for file in pin.golden:
                if file.member not in held:
                    raise CkSourceError(f"{pin.file} has no {file.member}", "Correct its row in ck/golden.toml.")
                target = tree / file.name
                target.parent.mkdir(exist_ok=True)
                target.write_bytes(archive.read(file.member))
        check_golden(tree, pin)
        if not destination.exists():
            shutil.move(tree, destination)


def check_golden(directory: Path, pin: Pin) -> None:
    """Check that every listed code object is there and is the pinned one.

    Raises:
        CkSourceError: one is missing.
        HashMismatchError: one was changed.
    """
    for file in pin.golden:
        path = directory / file.name
        if not path.is_file():
            raise CkSourceError(
                f"the golden kernel {path} is missing", f"Remove {directory} and run `./pixiw run fetch-ck`."
            )
        data = path.read_bytes()
        if (got := hashlib.sha256(data).hexdigest()) != file.sha256:
            raise HashMismatchError(str(path), file.sha256, got, len(data), f"Remove {directory}")


def find_golden(cache: Path, pin: Pin | None = None) -> Path | None:
    """The directory of the golden code objects, checked, or None where they were not fetched.

    Raises:
        CkSourceError: a file is missing.
        HashMismatchError: a file is not the pinned one.
    """
    pin = pin or load_pin()
    directory = golden_directory(cache, pin)
    if not directory.exists():
        return None
    check_golden(directory, pin)
    return directory


def fetch_golden(cache: Path, pin: Pin | None = None) -> Path:
    """The directory of the golden code objects in the cache, checked; downloaded where it is not there yet.

    Raises:
        CkSourceError: the download failed, or a file is missing.
        HashMismatchError: a file is not the pinned one; none is used.
    """
    pin = pin or load_pin()
    if found := find_golden(cache, pin):
        return found
    directory = golden_directory(cache, pin)
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ck-", dir=cache) as scratch:
        unpack_golden(download_wheel(pin, Path(scratch)), pin, directory)
    return directory
