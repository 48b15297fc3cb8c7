"""The run under Wine: paths as Windows knows them, what is missing, and that every check of the script is run."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from scripts import test_windows as script
from scripts.buildlib.windows import torch_wheel, wine

ROOT = Path(__file__).resolve().parents[2]


def test_paths_are_those_of_the_drive_that_is_the_root(tmp_path: Path) -> None:
    assert wine.windows_path(Path("/usr/Ä b/c")) == "Z:\\usr\\Ä b\\c"


def test_wine_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wine, "_PROGRAMS", ("no-such-wine",))
    with pytest.raises(wine.WineError, match="Wine was not found: apt-get install wine64"):
        wine.find_wine(may_install=False)


def test_every_check_of_the_script_is_run() -> None:
    tree = ast.parse(script.CHECKS.read_text(encoding="utf-8"))
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert [name.removeprefix("check_") for name in names if name.startswith("check_")] == list(script.NAMES)


def test_an_unknown_check_is_a_bad_request() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "test_windows.py"), "all"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no check all; allowed: decoy, hip_path, loaded_runtime, attention" in done.stderr


def test_missing_kernels_are_named_with_the_command(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "test_windows.py"), "--kernels", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"{tmp_path} has no kernels of gfx1201; run ./pixiw run build first" in done.stderr


def test_only_the_wanted_files_of_the_wheel_are_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = tmp_path / "torch-2.13.0.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("torch/lib/a.dll", "torch/lib/a.lib", "torch/include/a.h", "other/a.py"):
            archive.writestr(name, name)
    monkeypatch.setattr(torch_wheel, "fetch_wheel", lambda cache: wheel)
    tree = torch_wheel.unpack_wheel(tmp_path, "run", ("torch/",), ("torch/include/",))
    files = {path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file()}
    assert files == {"torch/lib/a.dll", "torch/lib/a.lib"}
    wheel.unlink()
    assert torch_wheel.unpack_wheel(tmp_path, "run", ("torch/",)) == tree
