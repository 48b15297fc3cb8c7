"""A relocatable conda package of the running CPython: pyenv's, python.org's or Debian's own."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from scripts.buildlib.repack.archive import Repack, digest_entries, digest_files, staged_files
from scripts.buildlib.repack.distribution import PYTHON_XY, convert_bytecode
from scripts.buildlib.repack.relocate import copy_writable, is_elf, needed_libraries, set_rpath, strip_debug

# Not needed to run programs, or tied to the machine it was installed on.
_LEFT_OUT = {"__pycache__", "EXTERNALLY-MANAGED", "dist-packages", "ensurepip", "idlelib", "lib2to3", "site-packages"}
_LEFT_OUT |= {"sitecustomize.py", "test", "tkinter", "turtledemo"}
# Extension modules for windows on a screen and for CPython's own tests.
_LEFT_OUT_MODULES = ("_tkinter.", "_test", "_xxtest", "_ctypes_test.")

_RELOCATE = """

def _relocate(old, variables):
    # The values name the directory this Python was built for; this copy runs where it was unpacked.
    import sys
    new = sys.base_prefix

    def moved(text):
        parts = text.split(" ")
        return " ".join(new + part[len(old):] if (part + "/").startswith(old + "/") else part for part in parts)

    return {key: moved(value) if isinstance(value, str) else value for key, value in variables.items()}


build_time_vars = _relocate(%r, build_time_vars)
"""

_SITE_CUSTOMIZE = """\
# Debian's `site` adds only dist-packages to sys.path; conda packages are in site-packages.
import site
import sys

site.addsitedir(f"{sys.prefix}/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages")
"""


def _base_executable() -> Path:
    return Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))


def _stdlib() -> Path:
    base = {"installed_base": sys.base_prefix, "base": sys.base_prefix}
    return Path(sysconfig.get_path("stdlib", "posix_prefix", vars=base))


def _headers() -> list[tuple[Path, str]]:
    """The C headers, which torch.compile's code for CPUs includes; Debian has them in a package of their own."""
    base = {"installed_base": sys.base_prefix, "base": sys.base_prefix}
    folder = Path(sysconfig.get_path("include", "posix_prefix", vars=base))
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [(path, f"include/python{PYTHON_XY}/{path.relative_to(folder).as_posix()}") for path in files]


def _copy_stdlib(source: Path, target: Path) -> None:
    for folder, directories, names in os.walk(source):
        directories[:] = [n for n in directories if n not in _LEFT_OUT and not n.startswith("config-")]
        for name in names:
            path = Path(folder) / name
            if name in _LEFT_OUT or name.startswith(_LEFT_OUT_MODULES) or not path.is_file():
                continue
            copy = copy_writable(path, target / path.relative_to(source))
            if copy.suffix == ".py" and not _change_source(copy):
                bytecode = copy.parent / "__pycache__" / f"{copy.stem}.{sys.implementation.cache_tag}.pyc"
                convert_bytecode(path, bytecode)


def _change_source(path: Path) -> bool:
    """Change the modules that know where Python is installed; True if this one was changed."""
    if path.name.startswith("_sysconfigdata"):
        with path.open("a", encoding="utf-8") as stream:
            stream.write(_RELOCATE % sys.base_prefix)
        return True
    if path.stem == "sysconfig" or path.parent.name == "sysconfig":
        # Debian's own Python installs into dist-packages; a conda environment has site-packages.
        text = path.read_text(encoding="utf-8")
        changed = text.replace("dist-packages", "site-packages")
        changed = changed.replace("prefix_scheme = 'posix_local'", "prefix_scheme = 'posix_prefix'")
        path.write_text(changed, encoding="utf-8")
        return changed != text
    return False


def _find_site_packages(stdlib: Path) -> None:
    """Make Debian's Python look into site-packages: its changed `site` is frozen into the program (Python 3.11 on)."""
    if "dist-packages" in (stdlib / "site.py").read_text(encoding="utf-8"):
        (stdlib / "sitecustomize.py").write_text(_SITE_CUSTOMIZE, encoding="utf-8")


def _stage(staging: Path) -> Iterable[tuple[Path, str]]:
    stdlib = staging / f"lib/python{PYTHON_XY}"
    _copy_stdlib(_stdlib(), stdlib)
    (stdlib / "site-packages").mkdir()
    (stdlib / "site-packages" / "README.txt").write_text("Packages are installed here.\n", encoding="utf-8")
    _find_site_packages(stdlib)
    program = copy_writable(_base_executable(), staging / f"bin/python{PYTHON_XY}")
    for name in ("python", "python3"):
        (staging / "bin" / name).symlink_to(program.name)
    modules = [path for path in (stdlib / "lib-dynload").glob("*.so") if is_elf(path)]
    originals = [_stdlib() / "lib-dynload" / path.name for path in modules]
    libraries = [
        copy_writable(source, staging / "lib" / soname)
        for soname, source in sorted(needed_libraries([_base_executable(), *originals]).items())
    ]
    strip_debug([program, *modules, *libraries])
    set_rpath([program], "$ORIGIN/../lib")
    set_rpath(modules, "$ORIGIN/../..")
    set_rpath(libraries, "$ORIGIN")
    return [*staged_files(staging), *_headers()]


def plan_interpreter() -> Repack:
    """Repack the CPython that runs this, from its base installation when it runs in a virtual environment."""
    program = _base_executable()
    libraries = needed_libraries([program])
    return Repack(
        name="python",
        version=sys.version.split()[0].rstrip("+"),
        identity=f"{sys.version}\n{sys.base_prefix}\n{digest_files([program, *libraries.values()])}"
        f"\n{digest_entries(_headers())}",
        depends=(),
        stage=_stage,
    )
