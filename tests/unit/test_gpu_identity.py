"""What the kernel driver says of the GPUs, and what is told to those who set HSA_OVERRIDE_GFX_VERSION."""

from __future__ import annotations

from pathlib import Path

import pytest

from flash_attn_rocm.gpu_identity import driver_cards, driver_gpus, override_note
from scripts.buildlib.request import choose_archs
from tests.unit.kfd_nodes import make_nodes

PACKAGED = ("gfx1100", "gfx1151", "gfx1201")


# gfx_target_version is major * 10000 + minor * 100 + stepping; gfx names write minor and stepping in hexadecimal.
@pytest.mark.parametrize(
    ("version", "gfx"), [(90010, "gfx90a"), (90402, "gfx942"), (110000, "gfx1100"), (120001, "gfx1201")]
)
def test_driver_versions_become_gfx_names(tmp_path: Path, version: int, gfx: str) -> None:
    assert driver_gpus(make_nodes(tmp_path, version)) == (gfx,)


def test_two_cards_are_named_once_each_and_cpus_not_at_all(tmp_path: Path) -> None:
    assert driver_gpus(make_nodes(tmp_path, 0, 120001, 90402, 120001)) == ("gfx1201", "gfx942")
    assert driver_gpus(tmp_path / "nowhere") == ()


def test_cards_come_in_the_drivers_order(tmp_path: Path) -> None:
    """Node 10 after node 2: a sort by letters would put it after node 1."""
    nodes = make_nodes(tmp_path, 0, 120001, 90402, 0, 0, 0, 0, 0, 0, 0, 120001)
    assert driver_cards(nodes) == ("gfx1201", "gfx942", "gfx1201")
    make_nodes(tmp_path / "ten", *[0] * 10, 110501)
    (tmp_path / "ten" / "nodes" / "2" / "properties").write_text("gfx_target_version 90010\n")
    assert driver_cards(tmp_path / "ten" / "nodes") == ("gfx90a", "gfx1151")


def test_nodes_that_may_not_be_read_are_passed_over(tmp_path: Path) -> None:
    nodes = make_nodes(tmp_path, 0, 120001)
    (nodes / "2" / "properties").mkdir(parents=True)  # reading it raises OSError, as of a hidden node, for root too
    (nodes / "3").mkdir()
    assert driver_gpus(nodes) == ("gfx1201",)
    assert [arch.gfx for arch in choose_archs("native", {}, nodes)] == ["gfx1201"]
    assert "the driver says: gfx1201" in _note(nodes, "11.0.0")


def _note(nodes: Path, value: str) -> str:
    return override_note(PACKAGED, {"HSA_OVERRIDE_GFX_VERSION": value}, nodes)


def test_without_the_variable_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert override_note(PACKAGED, {}, make_nodes(tmp_path, 110501)) == ""
    assert _note(tmp_path, "") == ""


def test_the_card_itself_has_kernels(tmp_path: Path) -> None:
    note = _note(make_nodes(tmp_path, 0, 110501), "11.0.0")
    assert "HSA_OVERRIDE_GFX_VERSION=11.0.0 makes every GPU pose as gfx1100, but the driver says: gfx1151" in note
    assert note.endswith("unset it and install flash-attn-rocm-kernels-gfx1151")


def test_the_card_itself_has_no_kernels(tmp_path: Path) -> None:
    note = _note(make_nodes(tmp_path, 100306), "11.0.0")
    assert "the driver says: gfx1036" in note
    assert "this version has no kernels for gfx1036: FLASH_ATTN_ROCM_BACKEND=sdpa" in note
    assert "install flash-attn-rocm-kernels" not in note


def test_a_card_that_poses_as_itself(tmp_path: Path) -> None:
    assert _note(make_nodes(tmp_path, 120001), "12.0.1").endswith("is set and not needed: the GPU is a gfx1201")


@pytest.mark.parametrize(("value", "posed"), [("9.0.10", "gfx90a"), ("11.0.0", "gfx1100"), ("nonsense", "another")])
def test_a_driver_that_says_nothing(tmp_path: Path, value: str, posed: str) -> None:
    note = _note(tmp_path, value)
    assert f"pose as {posed}. " in note
    assert note.endswith("unset it, and install the kernels of the card itself")
