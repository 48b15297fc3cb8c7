"""Which libraries a file needs, where the checkout or the cache has an unusual name."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.buildlib.repack.relocate import find_patchelf, needed_libraries


@pytest.mark.parametrize("name", ["plain", "with a space", "été (1)"])
def test_libraries_below_any_directory_are_found(tmp_path: Path, name: str) -> None:
    """`ldd` prints the path as it is, spaces and brackets included (a build in such a checkout failed)."""
    place = tmp_path / name
    place.mkdir()
    listing = subprocess.run(["ldd", sys.executable], capture_output=True, text=True, check=True).stdout
    library = Path(next(line.split(" => ")[1].split(" (0x")[0] for line in listing.splitlines() if "libm.so" in line))
    shutil.copy(library, place / "libmine.so.1")
    program = place / "program"
    shutil.copy(Path(sys.executable).resolve(), program)
    patchelf = find_patchelf()
    subprocess.run([patchelf, "--set-soname", "libmine.so.1", place / "libmine.so.1"], check=True)
    subprocess.run([patchelf, "--add-needed", "libmine.so.1", "--set-rpath", str(place), program], check=True)
    assert needed_libraries([program])["libmine.so.1"] == place / "libmine.so.1"
