"""Run other programs: capture what they say, and turn a failure into an error that shows command and output."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.buildlib.errors import BuildError, CommandError


def find_program(name: str, hint: str = "") -> Path:
    """A program beside the running Python, which is its environment's, else on PATH.

    Args:
        name: the program's name or path.
        hint: how to get it, for the error.

    Raises:
        BuildError: it is in neither place.
    """
    beside_python = Path(sys.executable).parent
    found = shutil.which(name, path=str(beside_python)) or shutil.which(name)
    if found is None:
        raise BuildError(
            f"{name} is neither in {beside_python} nor on PATH; {hint or f'install the Python package {name}'}"
        )
    return Path(found)


def run_command(
    what: str, command: Sequence[str | Path], cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> str:
    """What the command wrote to standard output. `env` is added to our own environment.

    Raises:
        CommandError: it could not be started, or its exit code is not 0.
    """
    argv = [str(word) for word in command]
    try:
        done = subprocess.run(
            argv,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise CommandError(what, shlex.join(argv), 127, str(error)) from error
    if done.returncode:
        raise CommandError(what, shlex.join(argv), done.returncode, done.stderr or done.stdout)
    return done.stdout
