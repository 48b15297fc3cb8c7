"""The documentation: its generated tables are current, its links lead somewhere, its figures name existing commands."""

from __future__ import annotations

import argparse
import re
import tomllib
from pathlib import Path

import pytest

from flash_attn_rocm import environment
from flash_attn_rocm.cli import build_parser
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


def code_spans() -> list[str]:
    """What the pages set in the type of code: commands, paths, names."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", TEXT, flags=re.S))


def test_every_path_named_exists() -> None:
    """With <family> and NNNN for a part that differs."""
    folders = {path.name for path in ROOT.iterdir() if path.is_dir()} - {"build", "dist"}
    named = {span for span in code_spans() if span.split("/")[0] in folders and re.fullmatch(r"[\w./<>*-]+", span)}
    assert len(named) > 15
    missing = [path for path in named if not [*ROOT.glob(re.sub(r"<\w+>|NNNN", "*", path).rstrip("/"))]]
    assert missing == []


def test_every_variable_named_is_read() -> None:
    named = set(re.findall(r"FLASH_ATTN_ROCM_[A-Z_]+", TEXT))
    named |= {f"FLASH_ATTN_ROCM{span}" for span in code_spans() if re.fullmatch(r"_[A-Z_]+", span)}
    assert {"FLASH_ATTN_ROCM_BACKEND", "FLASH_ATTN_ROCM_EMULATOR"} <= named
    assert named <= set(environment.KNOWN)


def test_every_profile_named_exists() -> None:
    profiles = tomllib.loads((ROOT / "ck" / "variants.toml").read_text(encoding="utf-8"))["profiles"]
    named = re.findall(r"--profile ([a-z]+)|profiles? `([a-z]+)`|\(profile ([a-z]+)\)|, profile ([a-z]+)", TEXT)
    assert {"ci", "full", "inference"} <= {name for names in named for name in names if name} <= set(profiles)


def test_every_option_named_exists() -> None:
    """Of the program's commands, and of the tasks; those of other programs are not looked at."""
    lines = [
        *code_spans(),
        *(line for block in re.findall(r"```sh\n(.*?)```", TEXT, re.S) for line in block.splitlines()),
    ]
    tasks = tomllib.loads((ROOT / "pixi.toml").read_text(encoding="utf-8"))["tasks"]
    seen = 0
    for line in lines:
        if command := re.match(r"(?:build/env/bin/)?flash-attn-rocm (\w+)", line):
            known = command_options(command[1])
        elif task := re.match(r"\./pixiw run ([a-z-]+)", line):
            script = tasks[task[1]]["cmd"].split()[1]
            known = set(re.findall(r'"(--[a-z-]+)"', (ROOT / script).read_text(encoding="utf-8"))) | {"--help"}
        else:
            continue
        options = re.findall(r"(?<!\S)(--[a-z-]+)", line.partition("#")[0])
        assert set(options) <= known, line
        seen += len(options)
    assert seen > 15


def command_options(command: str) -> set[str]:
    """The options of one of the program's commands."""
    (subparsers,) = (action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction))
    return set(subparsers.choices[command]._option_string_actions)
