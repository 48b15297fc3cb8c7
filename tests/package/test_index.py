"""A channel's repodata describes the packages that lie there now."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import rattler_build

from scripts.buildlib.conda_calls import index_channel


def test_a_package_that_was_built_again_is_read_again(tmp_path: Path) -> None:
    """Two builds of one package have one file name; an installation by the older checksum would be the older build."""
    files, folder = tmp_path / "files", tmp_path / "channel" / "noarch"
    files.mkdir()
    for content in ("first", "second, longer"):
        (files / "file").write_text(content, encoding="utf-8")
        for old in folder.glob("*.conda"):
            old.unlink()
        rattler_build.assemble_package("thing", "1", "noarch", "0", folder, files_dir=files, noarch="generic")
        index_channel(folder.parent)
        (package,) = folder.glob("*.conda")
        rows = json.loads((folder / "repodata.json").read_text(encoding="utf-8"))["packages.conda"]
        assert rows[package.name]["sha256"] == hashlib.sha256(package.read_bytes()).hexdigest()
