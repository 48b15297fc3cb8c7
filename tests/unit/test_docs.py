"""The documentation: its generated tables are current, its links lead somewhere, its figures name existing commands."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from scripts.docs import regenerate
from tests.documents import PAGES, ROOT, TEXT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_generated_tables_are_current() -> None:
    assert regenerate(README) == README


def test_a_missing_marker_is_an_error() -> None:
    with pytest.raises(ValueError, match="begin support"):
        regenerate("no markers here")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_exists(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_readme_leads_to_every_page() -> None:
    assert [page.name for page in PAGES[1:] if f"(docs/{page.name})" not in README] == []


def test_every_task_named_exists() -> None:
    tasks = tomllib.loads((ROOT / "pixi.toml").read_text(encoding="utf-8"))["tasks"]
    named = set(re.findall(r"pixiw? run ([a-z-]+)", TEXT))
    assert {"build", "test"} <= named
    assert named <= set(tasks)


def test_every_gpu_has_a_row() -> None:
    for table in (ROOT / "src" / "flash_attn_rocm" / "archs").glob("gfx*.toml"):
        assert re.search(rf"^\| {table.stem} \|", README, re.M)
