"""The pinned wheel that carries Composable Kernel: what ck/pin.toml says of it, its download, the check of its hash."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ck.errors import CkSourceError, HashMismatchError, TableError, check_keys

PIN_TOML = Path(__file__).parent / "pin.toml"
GOLDEN_TOML = Path(__file__).parent / "golden.toml"


@dataclass(frozen=True)
class GoldenFile:
    """A code object of the wheel: its GPU, its path in the wheel, and what its bytes hash to."""

    gfx: str
    member: str
    sha256: str

    @property
    def name(self) -> str:
        """Where it lies in the cached directory."""
        return f"{self.gfx}/{self.member.rsplit('/', 1)[-1]}"


@dataclass(frozen=True)
class Pin:
    """ck/pin.toml and ck/golden.toml: the wheel that is built, its code objects, the submodule, the files we need."""

    name: str
    version: str
    file: str
    sha256: str
    ck_path: str
    unpack: tuple[str, ...]
    submodule_path: str
    submodule_commit: str
    relies_on: tuple[str, ...]
    golden: tuple[GoldenFile, ...] = ()

    @property
    def label(self) -> str:
        """How kernels.json names the wheel's tree."""
        return f"{self.name} {self.version}"

    @property
    def directory_name(self) -> str:
        """What the directories of its parts in the cache begin with."""
        return f"{self.name}-{self.version}-{self.sha256[:12]}"


def load_golden_files(path: Path = GOLDEN_TOML) -> tuple[GoldenFile, ...]:
    """Read ck/golden.toml.

    Raises:
        TableError: a key is unknown, missing or of the wrong type, a hash is none, or two files have one name.
    """
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    found = []
    for gfx, table in document.items():
        section: dict[str, Any] = check_keys(table, {"path": str, "files": dict}, path, f"[{gfx}]")
        for name, digest in section["files"].items():
            if not isinstance(digest, str) or len(digest) != 64 or set(digest) - set("0123456789abcdef"):
                raise TableError(
                    path, f"[{gfx}.files] {name} is {digest!r}; expected 64 hexadecimal digits of a sha256"
                )
            found.append(GoldenFile(gfx, f"{section['path']}/{name}", digest))
    names = [file.name for file in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise TableError(path, f"two files would be cached as {', '.join(twice)}")
    return tuple(found)


def load_pin(path: Path = PIN_TOML, golden: Path = GOLDEN_TOML) -> Pin:
    """Read ck/pin.toml and ck/golden.toml.

    Raises:
        TableError: a key is unknown, missing or of the wrong type.
    """
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    top: dict[str, Any] = check_keys(document, {"wheel": dict, "submodule": dict, "relies_on": dict}, path, "top level")
    texts = dict.fromkeys(("name", "version", "file", "sha256", "ck_path", "reason"), str)
    wheel: dict[str, Any] = check_keys(top["wheel"], {**texts, "unpack": list}, path, "[wheel]")
    submodule: dict[str, Any] = check_keys(
        top["submodule"], dict.fromkeys(("path", "commit", "reason"), str), path, "[submodule]"
    )
    relies_on: dict[str, Any] = check_keys(top["relies_on"], {"files": list}, path, "[relies_on]")
    return Pin(
        name=wheel["name"],
        version=wheel["version"],
        file=wheel["file"],
        sha256=wheel["sha256"],
        ck_path=wheel["ck_path"],
        unpack=tuple(wheel["unpack"]),
        submodule_path=submodule["path"],
        submodule_commit=submodule["commit"],
        relies_on=tuple(relies_on["files"]),
        golden=load_golden_files(golden),
    )


def check_wheel(wheel: Path, pin: Pin) -> None:
    """Raise HashMismatchError unless the file is the pinned one, to the last byte."""
    with wheel.open("rb") as file:
        got = hashlib.file_digest(file, "sha256").hexdigest()
    if got != pin.sha256:
        raise HashMismatchError(wheel.name, pin.sha256, got, wheel.stat().st_size)


def download_wheel(pin: Pin, directory: Path) -> Path:
    """Download the pinned wheel with pip, which checks the hash itself as well.

    Raises:
        CkSourceError: pip cannot get it, or refuses it.
    """
    requirements = directory / "requirements.txt"
    requirements.write_text(f"{pin.name}=={pin.version} --hash=sha256:{pin.sha256}\n", encoding="utf-8")
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--require-hashes", "--only-binary=:all:", "--dest", str(directory), "--requirement", str(requirements),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CkSourceError(
            f"pip could not download {pin.file}:\n{done.stderr.strip()}\n",
            "Check the network or the index pip uses, or set CK_ROOT to a Composable Kernel tree.",
        )
    return directory / pin.file
