"""The toolchain from Debian's archive, for machines without ROCm: clang, and HIP headers and bitcode as files.

clang, lld and LLVM's tools come from the machine's own release and are installed (as root, when they are missing).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from scripts.buildlib.commands import run_command
from scripts.buildlib.errors import BuildError
from scripts.buildlib.toolchains.debian_files import fetch_files, read_record, unpacked_tree
from scripts.buildlib.toolchains.layout import Candidate, Parts, bitcode_dirs, inspect_parts

ORIGIN = "registry"
# clang that reads the bitcode of rocm-device-libs-21, newest first.
CLANG_RELEASES = (22, 21)
_OFFLINE = "check the network and run `./pixiw run toolchain` again"
_EXPIRED = "the mirror is out of date: use a current one, or let apt accept it (apt.conf(5): Check-Valid-Until)"


def packages_of(release: int) -> tuple[str, ...]:
    """The Debian packages of one clang release that compiling and inspecting kernels needs."""
    return (f"clang-{release}", f"lld-{release}", f"llvm-{release}")


def find_clang(path: str | None) -> list[Path]:
    """clang++ of a release new enough, newest first: only those whose lld is installed beside them."""
    found = []
    for directory in (path or "").split(os.pathsep):
        for program in Path(directory).glob("clang++-*") if directory else ():
            number = re.fullmatch(r"clang\+\+-(\d+)", program.name)
            if number and int(number.group(1)) >= min(CLANG_RELEASES):
                lld = shutil.which(f"ld.lld-{number.group(1)}", path=path)
                found += [(int(number.group(1)), program)] if lld else []
    return [program for _, program in sorted(found, key=lambda item: -item[0])]


def offered_release() -> int | None:
    """The newest clang release that the machine's apt sources offer, after its lists were updated."""
    for release in CLANG_RELEASES:
        policy = run_command("apt-cache", ["apt-cache", "policy", f"clang-{release}"])
        if re.search(r"Candidate: \d", policy):
            return release
    return None


def install_command(release: int) -> list[str]:
    """The apt command that installs one clang release."""
    return ["apt-get", "install", "--yes", "--no-install-recommends", *packages_of(release)]


def _install_clang() -> Candidate | None:
    """Install clang as root; a Candidate says why that cannot be done."""
    by_hand = "sudo apt-get update && sudo " + " ".join(install_command(CLANG_RELEASES[0]))
    names = " ".join(packages_of(CLANG_RELEASES[0]))
    if os.geteuid() != 0:
        return Candidate(ORIGIN, "apt", None, f"{names} are not installed, and installing them needs root", by_hand)
    run_command("apt-get update", ["apt-get", "update"])
    release = offered_release()
    if release is None:
        wanted = ", ".join(f"clang-{number}" for number in CLANG_RELEASES)
        fix = "add the Debian release's security suite to /etc/apt/sources.list.d"
        return Candidate(ORIGIN, "apt", None, f"this machine's apt sources offer none of {wanted}", fix)
    run_command("apt-get install", install_command(release), env={"DEBIAN_FRONTEND": "noninteractive"})
    return None


def find_candidates(env: Mapping[str, str], gfxs: Sequence[str], cache: Path, may_install: bool) -> Iterator[Candidate]:
    """One candidate. With `may_install`, what is missing is installed (clang) or downloaded (files) first."""
    if shutil.which("apt-get", path=env.get("PATH")) is None:
        yield Candidate(ORIGIN, "apt", None, "this is not a Debian system: there is no apt-get")
        return
    complete = find_clang(env.get("PATH")) and read_record(unpacked_tree(cache)) is not None
    if not complete and not may_install:
        yield Candidate(
            ORIGIN, "apt", None, "not tried: it would download parts, which is done only when no earlier place works"
        )
        return
    try:
        if not find_clang(env.get("PATH")) and (refusal := _install_clang()):
            yield refusal
            return
        root = fetch_files(cache)
    except (BuildError, OSError) as error:
        yield Candidate(ORIGIN, "apt", None, str(error), _EXPIRED if "is expired" in str(error) else _OFFLINE)
        return
    usr = root / "usr"
    candidate = inspect_parts(
        ORIGIN, f"apt, {root}", Parts(find_clang(env.get("PATH")), (usr,), bitcode_dirs(usr)), gfxs
    )
    candidate.versions.update(read_record(root) or {})
    yield candidate
