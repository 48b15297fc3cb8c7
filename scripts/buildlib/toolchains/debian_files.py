"""Unpack Debian packages' files into the cache without installing them, through a private apt configuration.

HIP headers and device-library bitcode are plain files that run nowhere on this machine, so a newer Debian release than
the machine's own can provide them. apt verifies the archive's signature and every file's hash; the machine's own apt
sources, lists and package database are only read.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from scripts.buildlib.commands import run_command
from scripts.buildlib.errors import BuildError

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SUITE = "testing"  # always the newest release that has finished packages
PACKAGES = ("libamdhip64-dev", "rocm-device-libs-21")
RECORD = "versions.json"
_TARGET_FORMAT = "$(SITE)|$(ORIGIN)|$(LABEL)|$(COMPONENT)|$(CREATED_BY)"


class DebianFilesError(BuildError):
    """The files cannot be had from a Debian archive."""


def choose_site(targets: str) -> str | None:
    """The main Debian archive among apt's index targets, one `site|origin|label|component|created by` a line.

    The security archive has a label of its own and no HIP; third parties have an origin of their own.
    """
    for line in targets.splitlines():
        site, origin, label, component, created_by = line.split("|")
        if (origin, label, component, created_by) == ("Debian", "Debian", "main", "Packages"):
            return site
    return None


def private_options(state: Path) -> list[str]:
    """apt options that keep everything it reads and writes about archives below `state`."""
    return [
        "-o", f"Dir::Etc::sourcelist={state / 'sources.list'}",
        "-o", "Dir::Etc::sourceparts=/dev/null",
        "-o", f"Dir::State::lists={state / 'lists'}",
        "-o", f"Dir::Cache={state / 'cache'}",
        "-o", "APT::Sandbox::User=root",
        "-o", "Acquire::Languages=none",
    ]  # fmt: skip


def find_site(state: Path) -> str:
    """The address of the Debian mirror that this machine's apt is configured for.

    Raises:
        DebianFilesError: apt knows no Debian archive.
    """
    site = choose_site(run_command("apt-get", ["apt-get", "indextargets", "--format", _TARGET_FORMAT]))
    if site is None:
        # Container images are shipped without package lists, and apt names only archives whose lists it has.
        lists = ["-o", f"Dir::State::lists={state / 'host-lists'}", "-o", "APT::Sandbox::User=root"]
        (state / "host-lists" / "partial").mkdir(parents=True, exist_ok=True)
        run_command("apt-get update", ["apt-get", *lists, "update"])
        site = choose_site(run_command("apt-get", ["apt-get", *lists, "indextargets", "--format", _TARGET_FORMAT]))
    if site is None:
        raise DebianFilesError(
            "apt on this machine is not configured for a Debian archive (see /etc/apt/sources.list.d)"
        )
    return site


def unpacked_tree(cache: Path, packages: Sequence[str] = PACKAGES) -> Path:
    """Where the packages' files are in the cache: a name of its own for every choice of packages."""
    return cache / f"debian-{hashlib.sha256(' '.join((SUITE, *packages)).encode()).hexdigest()[:8]}"


def read_record(root: Path) -> dict[str, str] | None:
    """Versions of the packages unpacked in `root`, or None when that was not finished."""
    record = root / RECORD
    return json.loads(record.read_text(encoding="utf-8")) if record.exists() else None


def _unpack(archives: Path, tree: Path) -> dict[str, str]:
    versions = {}
    for archive in sorted(archives.glob("*.deb")):
        run_command("dpkg-deb", ["dpkg-deb", "-x", archive, tree])
        name, version = run_command(
            "dpkg-deb", ["dpkg-deb", "--show", "--showformat=${Package} ${Version}", archive]
        ).split()
        versions[name] = version
    return versions


def fetch_files(cache: Path, packages: Sequence[str] = PACKAGES) -> Path:
    """The tree in the cache that holds the packages' files (below usr/); downloaded at the first call, reused after.

    Raises:
        DebianFilesError, CommandError: no Debian archive, or it cannot be reached, or a signature is wrong.
    """
    root = unpacked_tree(cache, packages)
    if read_record(root) is not None:
        return root
    if not KEYRING.exists():
        raise DebianFilesError(
            f"{KEYRING} is missing: apt cannot verify Debian's files; install debian-archive-keyring"
        )
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="apt-", dir=cache) as scratch:
        state, archives, tree = (Path(scratch) / name for name in ("state", "archives", "tree"))
        for directory in (state / "lists" / "partial", state / "cache" / "archives" / "partial", archives, tree):
            directory.mkdir(parents=True)
        site = find_site(state)
        (state / "sources.list").write_text(f"deb [signed-by={KEYRING}] {site} {SUITE} main\n", encoding="utf-8")
        options = private_options(state)
        run_command("apt-get update", ["apt-get", *options, "update"])
        run_command("apt-get download", ["apt-get", *options, "download", *packages], cwd=archives)
        versions = _unpack(archives, tree)
        (tree / RECORD).write_text(json.dumps(versions, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        if root.exists():
            shutil.rmtree(root)
        tree.rename(root)
    return root
