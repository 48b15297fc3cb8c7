"""Choose CK's source tree: CK_ROOT, the submodule when asked for, else the pinned wheel, unpacked into the cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ck.errors import CkSourceError, RequestError
from ck.golden import golden_directory, unpack_golden
from ck.wheel import Pin, check_wheel, download_wheel, load_pin

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class CkSource:
    """A CK tree. `label` names it in kernels.json, without paths; `why` says why it was chosen.

    `pinned`: it is the wheel's, which every build finds again by its hash.
    """

    root: Path
    label: str
    why: str
    pinned: bool = False

    @property
    def include(self) -> Path:
        """The directory that holds ck_tile/."""
        return self.root / "include"


def unpack_wheel(wheel: Path, pin: Pin, destination: Path) -> None:
    """Unpack the parts of CK that are used, all or nothing: an interrupted run leaves no destination.

    Raises:
        HashMismatchError: the file is not the pinned one; nothing of it is unpacked.
    """
    check_wheel(wheel, pin)
    destination.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="unpack-", dir=destination.parent) as scratch:
        tree = Path(scratch) / "tree"
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.namelist():
                inside = member.removeprefix(pin.ck_path + "/")
                if inside != member and not member.endswith("/") and inside.startswith(pin.unpack):
                    target = tree / inside
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(archive.read(member))
        if not destination.exists():
            shutil.move(tree, destination)


def fetch_wheel_tree(cache: Path, pin: Pin) -> Path:
    """The unpacked tree of the pinned wheel in the cache; downloaded at the first call, golden kernels with it."""
    tree = cache / "ck" / pin.directory_name
    if not tree.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="ck-", dir=cache) as scratch:
            wheel = download_wheel(pin, Path(scratch))
            unpack_wheel(wheel, pin, tree)
            if not (golden := golden_directory(cache, pin)).exists():
                unpack_golden(wheel, pin, golden)
    return tree


def _checked(source: CkSource, pin: Pin) -> CkSource:
    lacking = [name for name in pin.relies_on if not (source.root / name).is_file()]
    if lacking:
        raise CkSourceError(
            f"{source.root} ({source.why}) lacks {', '.join(lacking)}", "Point CK_ROOT at a complete tree, or unset it."
        )
    return source


def hash_tree(root: Path, pin: Pin) -> str:
    """Twelve hexadecimal digits over names and contents of the files of a CK tree that are used."""
    total = hashlib.sha256()
    for part in sorted(pin.unpack):
        for path in sorted([root / part, *(root / part).rglob("*")]):
            if path.is_file():
                total.update(f"{path.relative_to(root).as_posix()} ".encode())
                total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()[:12]


def _submodule_source(pin: Pin, repository: Path) -> CkSource:
    root = repository / pin.submodule_path
    if not (root / "include").is_dir():
        raise CkSourceError(
            f"the submodule {pin.submodule_path} is not checked out",
            f"Run `git submodule update --init --checkout {pin.submodule_path}`, or unset CK_SOURCE.",
        )
    done = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    commit = done.stdout.strip() or pin.submodule_commit
    return CkSource(root, f"composable_kernel {commit}", "CK_SOURCE=submodule; not tested by this project")


def choose_source(
    cache: Path, env: Mapping[str, str] = os.environ, pin: Pin | None = None, repository: Path = ROOT
) -> CkSource:
    """The CK tree to build.

    Raises:
        CkSourceError: the tree that was asked for is missing or incomplete, or the download failed.
        HashMismatchError: the download is not the pinned file.
        RequestError: CK_SOURCE is neither wheel nor submodule.
    """
    pin = pin or load_pin()
    kind = env.get("CK_SOURCE") or "wheel"
    if kind not in ("wheel", "submodule"):
        raise RequestError("CK_SOURCE", kind, ("wheel", "submodule"))
    if root := env.get("CK_ROOT"):
        label = f"a tree given by CK_ROOT, {hash_tree(Path(root).expanduser(), pin)}"
        return _checked(CkSource(Path(root).expanduser().absolute(), label, "CK_ROOT; not tested by this project"), pin)
    if kind == "submodule":
        return _checked(_submodule_source(pin, repository), pin)
    return _checked(CkSource(fetch_wheel_tree(cache, pin), pin.label, "the pinned wheel", pinned=True), pin)
