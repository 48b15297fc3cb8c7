"""The rendered HIP source, checked against the C++ wrapper it instantiates."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import ck.render
from ck.bwd_tiling import BwdTile
from ck.plan import KernelSpec, Unit, plan_units
from ck.render import render_launcher, render_unit
from ck.tiling import Tile
from ck.variants import Variant
from flash_attn_rocm.archs import load_arch

DEVICE = Path(__file__).parents[2] / "csrc" / "device"
D64 = Tile((64, 64, 32, 64, 32, 64), (4, 1, 1), (16, 16, 16))
PLAIN = Variant("fmha_fwd", 64, "bf16", "batch", False, "none", False, False, "none")


def render_one(variant: Variant) -> str:
    return render_unit(Unit("u", "gfx1201", (KernelSpec("gfx1201", variant, D64),)))


def flags(variant: Variant) -> dict[str, str]:
    return dict(re.findall(r"/\*([a-z ]+)=\*/(true|false)", render_one(variant).partition("Kernel0")[2]))


def test_flags_follow_the_order_of_the_wrapper_template() -> None:
    header = (DEVICE / "fmha_fwd.hpp").read_text()
    parameters = re.findall(r"bool k(\w+)_[,>]", header.partition("struct FmhaFwd")[0])
    assert [name.replace(" ", "") for name in flags(PLAIN)] == [name.lower() for name in parameters]


def test_flags_of_split_kernels_follow_their_template_too() -> None:
    header = (DEVICE / "fmha_fwd_splitkv.hpp").read_text()
    parameters = re.findall(r"bool k(\w+)_[,>]", header.partition("struct FmhaFwdSplitKv")[0])
    split = replace(PLAIN, op="fmha_fwd_splitkv", mode="group", padding="full", page=16, bias="alibi")
    assert [name.replace(" ", "") for name in flags(split)] == [name.lower() for name in parameters]
    assert {name for name, value in flags(split).items() if value == "true"} == {"pad hdim", "alibi", "paged"}


def test_plain_kernels_are_templates_over_the_element() -> None:
    spec = KernelSpec("gfx1201", replace(PLAIN, op="split_combine", hdim=256, padding="full"), None)
    text = render_unit(Unit("u", "gfx1201", (spec,)))
    assert "using Kernel0 = flash_attn_rocm::SplitCombine<__bf16>;" in text
    assert "FA_PLAIN_KERNEL(split_combine_gfx1201_bf16, Kernel0);" in text
    assert '#include "split_combine.hpp"' in text


def test_each_feature_sets_its_own_flag_only() -> None:
    assert set(flags(PLAIN).values()) == {"false"}
    for change, names in (
        ({"mask": True}, {"mask"}),
        ({"mode": "group"}, {"group"}),
        ({"softcap": True}, {"softcap"}),
        ({"bias": "alibi"}, {"alibi"}),
        ({"dropout": True}, {"dropout"}),
        ({"padding": "seqlen"}, {"pad seqlen"}),
        ({"padding": "full"}, {"pad seqlen", "pad hdim"}),
    ):
        on = {name for name, value in flags(replace(PLAIN, **change)).items() if value == "true"}
        assert on == names


def test_dtype_chooses_the_element_type() -> None:
    assert "FmhaFwd<ck_tile::bf16_t," in render_one(PLAIN)
    assert "FmhaFwd<ck_tile::fp16_t," in render_one(replace(PLAIN, dtype="fp16"))


def test_every_kernel_is_instantiated_once_with_a_shape_that_is_defined() -> None:
    for unit in plan_units(load_arch("gfx1201"), "full"):
        text = render_unit(unit)
        assert re.findall(r"FA_\w+_KERNEL\((\w+),", text) == [spec.name for spec in unit.specs]
        defined = set(re.findall(r"^using (Shape\w+) =", text, flags=re.MULTILINE))
        assert set(re.findall(r"_t, (Shape\w+),", text)) == defined
        assert len(defined) == len({spec.tile for spec in unit.specs if spec.tile is not None})


def test_text_is_the_same_every_time_and_names_no_path() -> None:
    for unit in plan_units(load_arch("gfx1201"), "smoke"):
        assert render_unit(unit) == render_unit(unit)
        assert str(Path.home()) not in render_unit(unit)


def test_macro_and_header_exist() -> None:
    for macro in ("FA_TILED_KERNEL", "FA_PLAIN_KERNEL"):
        assert f"#define {macro}(name, kernel_type)" in (DEVICE / "kernel_record.hpp").read_text()
    for header in ck.render._HEADER.values():
        assert (DEVICE / header).exists()


def test_launcher_holds_one_kernel_and_ck_own_header() -> None:
    text = render_launcher(KernelSpec("gfx1201", PLAIN, D64))
    assert text.count("FmhaFwd<") == 1
    assert text.index('"fmha_fwd.hpp"') < text.index('"device/fmha_fwd.hpp"')
    assert "_KERNEL(" not in text


def test_the_async_pipeline_has_a_wrapper_of_its_own() -> None:
    """Its head dim is always exact, so that it has no flag for padded ones."""
    tile = replace(D64, matrix=(32, 32, 16), pipeline="async")
    variant = Variant("fmha_fwd", 64, "bf16", "batch", False, "none", False, False, "seqlen")
    text = render_unit(Unit("u", "gfx942", (KernelSpec("gfx942", variant, tile),)))
    assert '#include "fmha_fwd_async.hpp"' in text
    assert "FmhaFwdAsync<ck_tile::bf16_t, ShapeM64N64W4,\n    /*pad seqlen=*/true, /*group=*/false" in text


def test_the_wide_backward_has_a_wrapper_of_its_own() -> None:
    """Its flags follow its template; it never prefetches."""
    tile = BwdTile((32, 64, 16, 256), (2, 4), (2, 4), (1, 8), (16, 16, 16), False, "wide")
    variant = replace(PLAIN, op="fmha_bwd", hdim=256, padding="full", dropout=True)
    text = render_unit(Unit("u", "gfx1201", (KernelSpec("gfx1201", variant, tile),)))
    header = (DEVICE / "fmha_bwd_wide.hpp").read_text()
    parameters = re.findall(r"bool k(\w+)_[,>]", header.partition("// As FmhaBwd,")[2].partition("struct")[0])
    words = re.findall(r"/\*([a-z ]+)=\*/(true|false)", text)
    assert [name.replace(" ", "") for name, _ in words] == [name.lower() for name in parameters]
    assert {name for name, value in words if value == "true"} == {"pad hdim", "dropout"}
    assert '#include "fmha_bwd_wide.hpp"' in text
    assert "flash_attn_rocm::BwdWideShape<32, 64, 256, 16," in text
