"""Packages of a hash-locked file of requirements/, installed into the cache when a test first needs them."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.buildlib.cache_root import cache_root

ROOT = Path(__file__).resolve().parents[2]
PIP = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]


def locked_packages(name: str) -> Path:
    """The directory that holds what requirements/<name>.txt locks, for sys.path."""
    lock = ROOT / "requirements" / f"{name}.txt"
    key = hashlib.sha256(f"{sys.version_info[:2]}\n{lock.read_text(encoding='utf-8')}".encode()).hexdigest()[:16]
    target = cache_root() / name / key
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".new-") as scratch:
            options = ["--no-compile", "--require-hashes", "--target", f"{scratch}/site", "--requirement", str(lock)]
            subprocess.run([*PIP, *options], check=True)
            if not target.is_dir():  # else another test run was faster
                Path(scratch, "site").rename(target)
    return target
