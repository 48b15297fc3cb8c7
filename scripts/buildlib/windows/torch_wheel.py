"""torch for Windows, from the package index: the wheel by its pinned hash, its files unpacked into the cache.

Nothing of it runs here unless Wine does: the cross build needs the headers and the import library torch_cpu.lib.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

from scripts.buildlib.commands import run_command
from scripts.buildlib.errors import BuildError

ROOT = Path(__file__).resolve().parents[3]
REQUIREMENTS = ROOT / "requirements" / "windows.txt"
PYTHON = "3.13"  # of the wheel: the Python that runs under Wine
BUILD_PARTS = ("torch/include/", "torch/lib/torch_cpu.lib")


class TorchWheelError(BuildError):
    """The wheel cannot be had."""


def pinned_hash(requirements: Path = REQUIREMENTS) -> str:
    """The sha256 of the wheel that requirements/windows.txt names.

    Raises:
        TorchWheelError: it names none.
    """
    text = requirements.read_text(encoding="utf-8")
    found = re.search(r"^torch==.*?--hash=sha256:([0-9a-f]{64})$", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise TorchWheelError(f"{requirements} has no hash of torch")
    return found.group(1)


def _download(directory: Path) -> Path:
    command: list[str | Path] = [
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--require-hashes", "--only-binary=:all:", "--platform", "win_amd64", "--python-version", PYTHON,
        "--dest", directory, "--requirement", REQUIREMENTS,
    ]  # fmt: skip
    try:
        run_command("downloading torch for Windows", command)
    except BuildError as error:
        raise TorchWheelError(f"torch for Windows cannot be had from pip's index (122 MB, once): {error}") from error
    return next(directory.glob("torch-*.whl"))


def fetch_wheel(cache: Path) -> Path:
    """The wheel in the cache, downloaded at the first call; pip checks its hash.

    Raises:
        TorchWheelError: the index does not have it, or cannot be reached.
    """
    directory = cache / "windows" / pinned_hash()[:16]
    if not (found := list(directory.glob("torch-*.whl"))):
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            wheel = _download(Path(scratch))
            wheel.replace(directory / wheel.name)
        found = list(directory.glob("torch-*.whl"))
    return found[0]


def unpack_wheel(cache: Path, name: str, parts: Iterable[str], without: Iterable[str] = ()) -> Path:
    """A directory in the cache that holds those files of the wheel that begin with one of `parts`.

    Raises:
        TorchWheelError: the wheel cannot be had.
    """
    wheel = fetch_wheel(cache)
    tree = wheel.parent / name
    if tree.exists():
        return tree
    wanted, unwanted = tuple(parts), tuple(without)
    with tempfile.TemporaryDirectory(dir=wheel.parent) as scratch, zipfile.ZipFile(wheel) as archive:
        members = [path for path in archive.namelist() if path.startswith(wanted) and not path.startswith(unwanted)]
        archive.extractall(scratch, members)
        # Whole or not at all; another build may have been first.
        if not tree.exists():
            shutil.move(scratch, tree)
            Path(scratch).mkdir()
    return tree
