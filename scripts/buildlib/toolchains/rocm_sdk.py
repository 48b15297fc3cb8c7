"""The toolchain in AMD's rocm-sdk wheels (rocm[devel]), found through their own `rocm-sdk path --root`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from scripts.buildlib.commands import run_command
from scripts.buildlib.errors import CommandError
from scripts.buildlib.toolchains.layout import Candidate, inspect_parts
from scripts.buildlib.toolchains.opt_rocm import rocm_parts

ORIGIN = "rocm-sdk"
_INIT = "rocm-sdk init"


def find_candidates(env: Mapping[str, str], gfxs: Sequence[str]) -> Iterator[Candidate]:
    """One candidate: the tree that the wheels' own command names."""
    program = shutil.which("rocm-sdk", path=env.get("PATH"))
    if program is None:
        yield Candidate(ORIGIN, "rocm-sdk", None, "the command rocm-sdk is not on PATH", "pip install 'rocm[devel]'")
        return
    try:
        root = Path(run_command("rocm-sdk", [program, "path", "--root"]).strip())
    except CommandError as error:
        reason = f"`rocm-sdk path --root` failed: {error.output.strip()[:200]}"
        yield Candidate(ORIGIN, program, None, f"{reason} (the development files are unpacked by `{_INIT}`)", _INIT)
        return
    if not (root / "include" / "hip").is_dir():
        reason = f"{root} has no HIP headers: `{_INIT}`, which unpacks the development files, was not run"
        yield Candidate(ORIGIN, program, None, reason, _INIT)
        return
    yield inspect_parts(ORIGIN, str(root), rocm_parts(root), gfxs, fix="pip install --upgrade 'rocm[devel]'")
