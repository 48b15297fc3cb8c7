"""One version everywhere: package, project files, recipe, CMake project."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import flash_attn_rocm

ROOT = Path(__file__).resolve().parents[2]


def found(path: str, pattern: str) -> str:
    match = re.search(pattern, (ROOT / path).read_text(encoding="utf-8"), re.M)
    assert match, f"{path} has no {pattern}"
    return match[1]


def test_every_file_names_the_same_version() -> None:
    versions = {
        "pyproject.toml": tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"],
        "pixi.toml": tomllib.loads((ROOT / "pixi.toml").read_text("utf-8"))["workspace"]["version"],
        "recipe/recipe.yaml": found("recipe/recipe.yaml", r'^context:\n  version: "(.*)"$'),
        "csrc/CMakeLists.txt": found("csrc/CMakeLists.txt", r"^project\(flash_attn_rocm VERSION (\S+) "),
    }
    assert versions == dict.fromkeys(versions, flash_attn_rocm.__version__)
