"""From tables to kernels: names, tiles, and translation units."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import ck.plan
from ck.errors import PlanError, RequestError
from ck.plan import KernelSpec, choose_hdims, group_specs, plan_specs, plan_units
from ck.tiling import Tile
from ck.variants import Variant, load_variants
from flash_attn_rocm.archs import load_arch, load_archs

GFX1201 = load_arch("gfx1201")
D64 = Tile((64, 64, 32, 64, 32, 64), (4, 1, 1), (16, 16, 16))
PLAIN = Variant("fmha_fwd", 64, "bf16", "batch", False, "none", False, False, "none")


def test_name_says_everything_that_varies() -> None:
    masked = replace(PLAIN, mask=True, padding="seqlen")
    assert KernelSpec("gfx1201", masked, D64).name == "fmha_fwd_gfx1201_bf16_d64_batch_mask_pseqlen"
    everything = replace(PLAIN, mode="group", mask=True, bias="alibi", softcap=True, dropout=True, padding="full")
    assert (
        KernelSpec("gfx1201", everything, D64).name
        == "fmha_fwd_gfx1201_bf16_d64_group_mask_alibi_softcap_dropout_pfull"
    )


def test_names_are_unique_and_legal_symbols() -> None:
    for arch in load_archs().values():
        names = [spec.name for unit in plan_units(arch, "full") for spec in unit.specs]
        assert len(set(names)) == len(names)
        assert all(re.fullmatch(r"[a-z0-9_]+", name) for name in names)


def test_smoke_is_one_unit_per_op_dtype_and_head_dim() -> None:
    assert {unit.name: len(unit.specs) for unit in plan_units(GFX1201, "smoke")} == {
        "fmha_bwd_gfx1201_bf16_d128": 1,
        "fmha_bwd_gfx1201_fp16_d128": 1,
        "fmha_fwd_gfx1201_bf16_d128": 2,
        "fmha_fwd_gfx1201_bf16_d64": 2,
        "fmha_fwd_gfx1201_fp16_d128": 2,
        "fmha_fwd_gfx1201_fp16_d64": 2,
        "plain_gfx1201_bf16": 3,
        "plain_gfx1201_fp16": 3,
    }


def test_units_depend_on_the_kernels_only_not_on_their_order() -> None:
    specs = plan_specs(GFX1201, load_variants().of_profile("full"))
    assert group_specs(reversed(specs)) == group_specs(specs)


def test_large_groups_are_cut_evenly_with_at_most_16_kernels() -> None:
    variants = [
        replace(PLAIN, mask=mask, bias=bias, dropout=dropout, padding=padding)
        for mask in (False, True)
        for bias in ("none", "alibi")
        for dropout in (False, True)
        for padding in ("none", "seqlen", "full")
    ]
    units = group_specs(plan_specs(GFX1201, variants))
    assert [len(unit.specs) for unit in units] == [12, 12]
    assert [unit.name for unit in units] == ["fmha_fwd_gfx1201_bf16_d64_0", "fmha_fwd_gfx1201_bf16_d64_1"]
    assert sorted(spec.variant for unit in units for spec in unit.specs) == sorted(variants)


def test_opt_dim_keeps_only_those_head_dims() -> None:
    specs = [spec for unit in plan_units(GFX1201, "inference", [32, 128]) for spec in unit.specs]
    assert {spec.variant.hdim for spec in specs if spec.tile is not None} == {32, 128}


def test_kernels_of_our_own_are_one_unit_per_dtype_whatever_the_head_dims() -> None:
    units = [unit for unit in plan_units(GFX1201, "inference", [64]) if unit.specs[0].tile is None]
    assert [unit.name for unit in units] == ["plain_gfx1201_bf16", "plain_gfx1201_fp16"]
    assert [spec.name for spec in units[0].specs] == ["kv_prepare_gfx1201_bf16", "split_combine_gfx1201_bf16"]


def test_head_dim_without_kernels_names_the_offered_ones() -> None:
    with pytest.raises(RequestError, match=r"head dim 48.*allowed: 64, 128.*OPT_DIM") as error:
        choose_hdims(load_variants(), "smoke", [48])
    assert error.value.exit_code == 2


def test_variant_without_tile_names_the_table() -> None:
    with pytest.raises(PlanError, match=r"d40 padding none for gfx1201.*tiles/gfx12.toml has no tile"):
        plan_specs(GFX1201, [replace(PLAIN, hdim=40)])


def test_illegal_row_names_the_kernel_and_the_reason() -> None:
    with pytest.raises(PlanError, match="fmha_fwd_gfx1201_bf16_d64_group_pnone cannot be built: group mode"):
        plan_specs(GFX1201, [replace(PLAIN, mode="group")])


def test_no_gpu_name_is_compared_in_planning_code() -> None:
    for path in Path(ck.plan.__file__).parent.glob("*.py"):
        assert not re.search(r"[=!]= *[\"']gfx", path.read_text()), path
