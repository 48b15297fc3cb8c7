"""Bytes of built kernels: installed, and to download."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from rich.table import Table

from ck.manifest import MANIFEST_NAME
from scripts.buildlib.errors import BadRequestError


def download_bytes(files: Iterable[Path]) -> int:
    """Size of a .conda package of these files, written as the build writes its packages last.

    The package is one tar, compressed as a whole (zstd, level 19). Code objects that were compressed one by one before
    would make it a quarter larger, for the kernels of one tile are much alike.
    """
    from conda_package_handling import api  # type: ignore[import-untyped]

    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "tree"
        (tree / "info").mkdir(parents=True)
        (tree / "info" / "index.json").write_text("{}", encoding="utf-8")
        for file in files:
            shutil.copyfile(file, tree / file.name)
        api.create(str(tree), None, "kernels.conda", out_folder=scratch)
        return (Path(scratch) / "kernels.conda").stat().st_size


def make_size_table(out: Path, gfxs: Iterable[str]) -> Table:
    """One row per GPU built in `out`.

    Raises:
        BadRequestError: a GPU has no kernels there.
    """
    table = Table(title="Sizes", title_justify="left")
    for heading in ("GPU", "profile", "kernels", "code objects", "installed MB", "download MB"):
        table.add_column(heading, justify="left" if heading in ("GPU", "profile") else "right")
    for gfx in gfxs:
        path = out / gfx / MANIFEST_NAME
        if not path.exists():
            raise BadRequestError("--sizes", gfx, f"GPUs built in {out}", "Build them first: ./pixiw run kernels")
        manifest = json.loads(path.read_text(encoding="utf-8"))
        files = [path, *(path.parent / entry["file"] for entry in manifest["code_objects"])]
        counts = (len(manifest["kernels"]), len(manifest["code_objects"]))
        sizes = (sum(file.stat().st_size for file in files), download_bytes(files))
        table.add_row(gfx, manifest["profile"], *map(str, counts), *(f"{size / 1e6:.2f}" for size in sizes))
    return table
