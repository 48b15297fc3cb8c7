"""GPU_ARCHS, OPT_DIM and MAX_JOBS, as people know them."""

from __future__ import annotations

from pathlib import Path

import pytest

from flash_attn_rocm.archs import load_archs
from scripts.buildlib.errors import BadRequestError
from scripts.buildlib.request import choose_archs, choose_hdims, choose_max_jobs
from tests.unit.kfd_nodes import make_nodes


def test_gpus_default_to_those_of_the_tables_and_options_win_over_the_variable() -> None:
    every = list(load_archs())
    assert len(every) == 13
    assert [arch.gfx for arch in choose_archs(None, {})] == every
    assert [arch.gfx for arch in choose_archs(None, {"GPU_ARCHS": ""})] == every
    assert [arch.gfx for arch in choose_archs("all", {})] == every
    assert [arch.gfx for arch in choose_archs("gfx1201", {"GPU_ARCHS": "gfx9999"})] == ["gfx1201"]


@pytest.mark.parametrize("text", ["gfx1201;gfx1201", "gfx1201,gfx1201", " gfx1201 ; gfx1201;"])
def test_gpus_are_separated_by_semicolons_or_commas_and_counted_once(text: str) -> None:
    assert [arch.gfx for arch in choose_archs(None, {"GPU_ARCHS": text})] == ["gfx1201"]


def test_unknown_gpu_is_a_bad_request_that_names_the_known_ones() -> None:
    with pytest.raises(BadRequestError, match=r"GPU_ARCHS is 'gfx803'; allowed: native, all, .*gfx1201") as error:
        choose_archs(None, {"GPU_ARCHS": "gfx803"})
    assert error.value.exit_code == 2


def test_native_is_the_gpu_in_the_machine(tmp_path: Path) -> None:
    nodes = make_nodes(tmp_path, 0, 120001, 120001)
    assert [arch.gfx for arch in choose_archs("native", {}, nodes)] == ["gfx1201"]


def test_native_without_a_gpu_explains_itself(tmp_path: Path) -> None:
    with pytest.raises(BadRequestError, match=r"`native` means the GPU in this machine.*none here"):
        choose_archs("native", {}, tmp_path)


@pytest.mark.parametrize(
    ("text", "hdims"), [("", None), ("64", (64,)), ("128;64", (64, 128)), ("64,128,64", (64, 128))]
)
def test_opt_dim(text: str, hdims: tuple[int, ...] | None) -> None:
    assert choose_hdims(None, {"OPT_DIM": text}) == hdims


def test_opt_dim_that_is_no_number_is_a_bad_request() -> None:
    with pytest.raises(BadRequestError, match=r"OPT_DIM is 'd64'; allowed: head dims such as 64;128"):
        choose_hdims(None, {"OPT_DIM": "d64"})


def test_max_jobs() -> None:
    assert choose_max_jobs(None, {}) is None
    assert choose_max_jobs(None, {"MAX_JOBS": "4"}) == 4
    assert choose_max_jobs("2", {"MAX_JOBS": "4"}) == 2
    for bad in ("0", "-1", "many", "1.5"):
        with pytest.raises(BadRequestError, match="a whole number from 1 up"):
            choose_max_jobs(bad, {})
