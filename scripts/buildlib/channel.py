"""The local channel: what the recipe's outputs need, repacked from this machine, where no channel can be reached."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from scripts.buildlib.conda_calls import index_channel
from scripts.buildlib.errors import BuildError
from scripts.buildlib.repack.archive import SUBDIR, Repack, link_or_copy, make_package
from scripts.buildlib.repack.distribution import plan_closure
from scripts.buildlib.repack.interpreter import plan_interpreter
from scripts.buildlib.repack.toolchain import plan_clangxx, plan_compiler, plan_llvm_tools
from scripts.buildlib.repack.tools import PLANS, plan_cxx
from scripts.buildlib.toolchains.layout import Toolchain

# rattler-build adds pip to the environment of a pip_check test by itself.
_ALWAYS = ("python", "pip")


class ChannelError(BuildError):
    """The local channel cannot be made."""


def plan_channel(names: Iterable[str], toolchain: Toolchain) -> list[Repack]:
    """How to make each of these packages, and what they require in turn.

    Raises:
        ChannelError: one is not available on this machine.
    """
    compiler = cache(lambda: plan_compiler(toolchain))  # it reads the whole compiler, which two packages name
    special: dict[str, Callable[[], Repack]] = {
        **PLANS,
        "python": plan_interpreter,
        "gxx_linux-64": lambda: plan_cxx(toolchain.clangxx),
        "llvm-tools": lambda: plan_llvm_tools(toolchain),
        "hip-clang_linux-64": compiler,
        "clangxx": lambda: plan_clangxx(compiler()),
    }
    wanted = {*names, *_ALWAYS}
    try:
        plans = [special[name]() for name in sorted(wanted & special.keys())]
        return plans + plan_closure(sorted(wanted - special.keys()))
    except LookupError as error:
        raise ChannelError(f"the local channel cannot be made: {error}") from error


def plan_compiler_channel(toolchain: Toolchain) -> list[Repack]:
    """Only the compiler, for use with reachable channels: so they build with the toolchain that was chosen."""
    return [plan_compiler(toolchain)]


def channel_key(plans: Iterable[Repack]) -> str:
    """Content key of a channel."""
    return hashlib.sha256("\n".join(sorted(plan.file_name for plan in plans)).encode()).hexdigest()[:16]


def make_channel(plans: list[Repack], root: Path, report: Callable[[str], None]) -> Path:
    """The directory of a channel that holds these packages, below `root`; made once for the same contents.

    `report` is told what is being made.

    Raises:
        ChannelError: a package cannot be made, for example because patchelf is missing.
    """
    channel = root / "channels" / channel_key(plans)
    if channel.exists():
        return channel
    store = root / "repacked"
    files = []
    for number, plan in enumerate(plans, 1):
        report(f"{number}/{len(plans)} {plan.name} {plan.version}")
        try:
            files.append(make_package(plan, store))
        except (LookupError, subprocess.CalledProcessError) as error:
            raise ChannelError(f"the local channel cannot be made: packing {plan.name}: {error}") from error
    channel.parent.mkdir(parents=True, exist_ok=True)
    # A directory of its own, renamed at the end: an interrupted build leaves no half channel behind.
    with tempfile.TemporaryDirectory(dir=channel.parent, prefix=".new-") as scratch:
        new = Path(scratch) / "channel"
        for file in files:
            link_or_copy(file, new / SUBDIR / file.name)
        (new / "noarch").mkdir()
        report("index")
        index_channel(new)
        try:
            new.rename(channel)
        except OSError:
            if not channel.exists():  # else another build made the same channel in the meantime
                raise
    return channel
