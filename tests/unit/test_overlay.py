"""Our headers before CK's: for families that need them, and each not with a CK that does its work itself."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from ck.errors import TableError
from ck.overlay import OVERLAY_DIR, TABLE_NAME, find_overlay
from ck.wheel import load_pin
from scripts.buildlib.cache_root import cache_root

GFX11 = tomllib.loads((OVERLAY_DIR / "gfx11" / TABLE_NAME).read_text())["headers"]
BWD_KERNEL = "ck_tile/ops/fmha/kernel/fmha_bwd_kernel.hpp"


def make_ck(root: Path, *settled: str) -> Path:
    """The include directory of a CK that does the work of these of our headers itself."""
    for row in GFX11:
        header = root / "include" / row["probe"]
        header.parent.mkdir(parents=True, exist_ok=True)
        text = header.read_text() if header.exists() else "#if defined(__gfx12__)\n"
        header.write_text(text + f"{row['words']}\n" * (row["path"] in settled))
    return root / "include"


def names(directory: Path) -> set[str]:
    """The headers of a directory."""
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*.hpp")}


def test_a_ck_without_attention_for_gfx11_gets_ours(tmp_path: Path) -> None:
    include = make_ck(tmp_path)
    assert find_overlay("gfx11", include, tmp_path) == OVERLAY_DIR / "gfx11"
    assert find_overlay("gfx12", include, tmp_path) is None


def test_a_ck_that_has_it_keeps_its_own(tmp_path: Path) -> None:
    assert find_overlay("gfx11", make_ck(tmp_path, *[row["path"] for row in GFX11]), tmp_path) is None


@pytest.mark.parametrize("settled", [row["path"] for row in GFX11])
def test_a_ck_that_has_a_part_gets_the_others(tmp_path: Path, settled: str) -> None:
    """What the part's header served from beside it stays, and a second look changes no file."""
    include = make_ck(tmp_path, settled)
    ours = names(OVERLAY_DIR / "gfx11")
    made = find_overlay("gfx11", include, tmp_path / "work")
    assert made is not None
    assert names(made) == ours - {settled}
    times = {path: path.stat().st_mtime_ns for path in made.rglob("*.hpp")}
    assert find_overlay("gfx11", include, tmp_path / "work") == made
    assert times == {path: path.stat().st_mtime_ns for path in made.rglob("*.hpp")}
    other = next(row["path"] for row in GFX11 if row["path"] != settled)
    assert find_overlay("gfx11", make_ck(tmp_path / "next", other), tmp_path / "work") == made
    assert names(made) == ours - {other}


def test_an_overlay_without_a_condition_always_counts(tmp_path: Path) -> None:
    (tmp_path / "overlay" / "gfx9").mkdir(parents=True)
    assert find_overlay("gfx9", tmp_path, tmp_path, tmp_path / "overlay") == tmp_path / "overlay" / "gfx9"


ROW = "[[headers]]\npath = 'ck_tile/a.hpp'\nprobe = ''\nwords = ''\nwhy = ''\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("schema = 2\nheaders = []\n", "schema is 2"),
        ("schema = 1\n", "missing keys"),
        ("schema = ", "not valid TOML"),
        ("schema = 1\nheaders = []\n", "expected one for each of"),
        ("schema = 1\n" + ROW.replace("a.hpp", "b.hpp"), "expected one for each of"),
        ("schema = 1\n" + ROW.replace("words = ''\n", ""), "missing keys"),
    ],
)
def test_a_malformed_condition_is_an_error(tmp_path: Path, text: str, problem: str) -> None:
    overlay = tmp_path / "overlay" / "gfx11"
    (overlay / "ck_tile").mkdir(parents=True)
    (overlay / "ck_tile" / "a.hpp").touch()
    (overlay / TABLE_NAME).write_text(text)
    with pytest.raises(TableError, match=rf"gfx11/overlay\.toml: .*{problem}"):
        find_overlay("gfx11", tmp_path, tmp_path, tmp_path / "overlay")


def included(text: str) -> set[str]:
    """What a header includes, CK's and the standard library's."""
    return set(re.findall(r"^#include [<\"]([^>\"]+)[>\"]", text, re.M))


def test_the_name_of_gfx12_reaches_no_other_header() -> None:
    """Ours includes all that CK's includes before it lends gfx11 the name of gfx12."""
    text = (OVERLAY_DIR / "gfx11" / BWD_KERNEL).read_text()
    before = text[: text.index("#define __gfx12__")]
    theirs = cache_root() / "ck" / load_pin().directory_name / "include" / BWD_KERNEL
    if not theirs.exists():
        pytest.skip("CK is not downloaded: ./pixiw run fetch-ck")
    assert included(theirs.read_text()) <= included(before)


def test_headers_have_the_paths_of_those_they_include() -> None:
    """A header in the place of CK's includes that one, by the same path."""
    for header in OVERLAY_DIR.glob("*/ck_tile/**/*.hpp"):
        path = header.relative_to(OVERLAY_DIR).as_posix().partition("/")[2]
        assert f'#include_next "{path}"' in header.read_text(), header
