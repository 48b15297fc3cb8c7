"""Our headers before CK's: for families that need them, and not with a CK that has attention for them itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from ck.errors import TableError
from ck.overlay import OVERLAY_DIR, find_overlay

PIPELINE = "ck_tile/ops/fmha/pipeline/block_fmha_pipeline_qr_ks_vs.hpp"


def make_ck(tmp_path: Path, text: str) -> Path:
    """The include directory of a CK whose forward pipeline reads `text`."""
    header = tmp_path / "include" / PIPELINE
    header.parent.mkdir(parents=True)
    header.write_text(text)
    return tmp_path / "include"


def test_a_ck_without_attention_for_gfx11_gets_ours(tmp_path: Path) -> None:
    include = make_ck(tmp_path, "#if defined(__gfx12__)")
    assert find_overlay("gfx11", include) == OVERLAY_DIR / "gfx11"
    assert find_overlay("gfx12", include) is None


def test_a_ck_that_has_it_keeps_its_own(tmp_path: Path) -> None:
    assert find_overlay("gfx11", make_ck(tmp_path, "#if defined(__gfx11__)\n    to_operand(p);\n#endif")) is None


def test_an_overlay_without_a_condition_always_counts(tmp_path: Path) -> None:
    (tmp_path / "overlay" / "gfx9").mkdir(parents=True)
    assert find_overlay("gfx9", tmp_path, tmp_path / "overlay") == tmp_path / "overlay" / "gfx9"


@pytest.mark.parametrize("text", ["schema = 2\nheader = ''\nwords = ''\nwhy = ''\n", "schema = 1\n"])
def test_a_malformed_condition_is_an_error(tmp_path: Path, text: str) -> None:
    overlay = tmp_path / "overlay" / "gfx11"
    overlay.mkdir(parents=True)
    (overlay / "overlay.toml").write_text(text)
    with pytest.raises(TableError, match=r"overlay\.toml"):
        find_overlay("gfx11", tmp_path, tmp_path / "overlay")


def test_headers_have_the_paths_of_those_they_include() -> None:
    """A header in the place of CK's includes that one, by the same path."""
    for header in OVERLAY_DIR.glob("*/ck_tile/**/*.hpp"):
        path = header.relative_to(OVERLAY_DIR).as_posix().partition("/")[2]
        assert f'#include_next "{path}"' in header.read_text(), header
