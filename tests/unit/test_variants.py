"""The table of kernel variants: what the profiles hold, and that nothing unknown passes."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from ck.errors import RequestError, TableError
from ck.variants import OPS, PLAIN_OPS, Variant, load_variants
from flash_attn_rocm.archs import load_archs

ROW = """
[[kernels]]
op = "fmha_fwd"
profiles = ["small"]
dtypes = ["bf16"]
hdims = [64]
modes = ["batch"]
masks = [false, true]
biases = ["none"]
softcaps = [false]
dropouts = [false]
paddings = ["none"]
why = "a test"
"""
TABLE = 'schema = 1\n[profiles]\nsmall = "a test"\n' + ROW


def load(tmp_path: Path, text: str):
    path = tmp_path / "variants.toml"
    path.write_text(text)
    return load_variants(path)


def test_smoke_serves_any_length_and_head_dim_up_to_128_in_both_directions() -> None:
    smoke = load_variants().of_profile("smoke")
    forward = {(v.hdim, v.dtype, v.padding) for v in smoke if v.op == "fmha_fwd"}
    assert forward == set(itertools.product((64, 128), ("fp16", "bf16"), ("seqlen", "full")))
    assert all(v.mask for v in smoke if v.op in ("fmha_fwd", "fmha_bwd"))  # which serve calls without a mask too
    assert {(v.hdim, v.dtype, v.padding) for v in smoke if v.op == "fmha_bwd"} == {
        (128, "fp16", "full"),
        (128, "bf16", "full"),
    }
    around = {(v.op, v.dtype) for v in smoke if v.op in PLAIN_OPS}
    assert around == set(itertools.product(("bwd_dot", "bwd_sum_keys", "bwd_sum_heads"), ("fp16", "bf16")))


def test_the_default_build_holds_smoke_for_one_gpu_of_each_family() -> None:
    table = load_variants()
    gpus = {arch.family: [] for arch in load_archs().values()}
    for gfx, arch in load_archs().items():
        if set(table.of_profile("smoke", gfx)) <= set(table.of_profile("ci", gfx)):
            gpus[arch.family].append(gfx)
    assert gpus == {"gfx9": ["gfx942"], "gfx11": ["gfx1100"], "gfx12": ["gfx1201"]}


def test_the_default_build_has_a_forward_kernel_for_every_gpu_and_a_backward_one_where_that_is_the_default() -> None:
    for gfx, arch in load_archs().items():
        ops = {variant.op for variant in load_variants().of_profile("ci", gfx)}
        assert "fmha_fwd" in ops
        assert arch.backward_backend != "ck" or {"fmha_bwd", "bwd_dot", "bwd_sum_keys", "bwd_sum_heads"} <= ops


def test_inference_is_every_head_dim_without_dropout() -> None:
    inference = load_variants().of_profile("inference")
    assert {v.hdim for v in inference} == {32, 64, 96, 128, 192, 256}
    assert not any(v.dropout for v in inference)


FEATURES = {
    "mask": lambda v: v.mask,
    "no mask": lambda v: not v.mask,
    "ALiBi": lambda v: v.bias == "alibi",
    "softcap": lambda v: v.softcap,
    "dropout": lambda v: v.dropout,
    "group": lambda v: v.mode == "group",
    **{f"hdim {hdim}": lambda v, hdim=hdim: v.hdim == hdim for hdim in (32, 64, 96, 128, 192, 256)},
    **{f"padding {padding}": lambda v, padding=padding: v.padding == padding for padding in ("none", "seqlen", "full")},
    **{f"page {page}": lambda v, page=page: v.page == page for page in (0, 16, 64)},
    **{f"op {op}": lambda v, op=op: v.op == op for op in OPS},
}


@pytest.mark.parametrize("feature", FEATURES)
def test_ci_has_every_feature_with_few_kernels(feature: str) -> None:
    kernels = load_variants().of_profile("ci", "gfx1201")
    assert any(FEATURES[feature](kernel) for kernel in kernels)
    assert len(kernels) <= 82


def test_ci_has_every_feature_up_to_d128_in_both_dtypes() -> None:
    """A kernel with mask and padding serves every call up to its head dim."""
    kernels = load_variants().of_profile("ci", "gfx1201")
    for dtype in ("fp16", "bf16"):
        for mode in ("batch", "group"):
            for bias, softcap, dropout in (
                ("none", False, False),
                ("alibi", False, False),
                ("none", True, False),
                ("none", False, True),
            ):
                wanted = ("fmha_fwd", 128, dtype, mode, True, bias, softcap, dropout, "full")
                assert Variant(*wanted) in kernels, wanted


def test_every_profile_is_within_full() -> None:
    table = load_variants()
    for profile in table.profiles:
        assert set(table.of_profile(profile)) <= set(table.of_profile("full"))


def test_overlapping_rows_give_each_variant_once(tmp_path: Path) -> None:
    assert len(load(tmp_path, TABLE + ROW).of_profile("small")) == 2


def test_rows_may_name_their_gpus(tmp_path: Path) -> None:
    table = load(tmp_path, TABLE.replace('why = "a test"', 'why = "a test"\ngpus = ["gfx1200"]'))
    assert len(table.of_profile("small")) == len(table.of_profile("small", "gfx1200")) == 2
    assert table.of_profile("small", "gfx1201") == ()
    one_more = ROW.replace('why = "a test"', 'why = "a test"\ngpus = ["gfx1200"]')
    assert len(load(tmp_path, TABLE + one_more).of_profile("small", "gfx1201")) == 2


def test_ci_compiles_little_for_the_second_gpu_of_a_family() -> None:
    table = load_variants()
    assert {gfx: len(table.of_profile("ci", gfx)) for gfx in ("gfx1101", "gfx1200", "gfx950")} == {
        "gfx1101": 1,
        "gfx1200": 6,
        "gfx950": 5,
    }


def test_unknown_profile_names_the_known_ones() -> None:
    with pytest.raises(RequestError, match=r"'nope'.*smoke, ci, inference, full") as error:
        load_variants().of_profile("nope")
    assert error.value.exit_code == 2


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('why = "a test"', 'why = "a test"\nspeed = 1', "unknown keys .'speed'.*row 1"),
        ('why = "a test"', "", "missing keys .'why'"),
        ("masks = [false, true]", "masks = [0, 1]", "masks has .0, 1.; allowed: .False, True"),
        ('paddings = ["none"]', 'paddings = ["half"]', "paddings has .'half'"),
        ('paddings = ["none"]', "paddings = []", "paddings has no values"),
        ("hdims = [64]", 'hdims = ["64"]', "expected positive integers"),
        ("hdims = [64]", "hdims = [0]", "expected positive integers"),
        ("schema = 1", "schema = true", "schema is True; expected int"),
        ('dtypes = ["bf16"]', 'dtypes = ["fp32"]', "dtypes has .'fp32'.*'fp16', 'bf16'"),
        ('profiles = ["small"]', 'profiles = ["large"]', "profiles has .'large'"),
        ('op = "fmha_fwd"', 'op = "gemm"', "op is 'gemm'"),
        ('paddings = ["none"]', "", "missing keys .'paddings'"),
        ('why = "a test"', 'why = "a test"\ngpus = ["gfx1"]', "gpus has .'gfx1'.; allowed: .*'gfx1201'"),
        ('paddings = ["none"]', 'paddings = ["none"]\npages = [48]', r"pages has .48.; allowed: .0, 16, 64"),
        ('op = "fmha_fwd"', 'op = "split_combine"', "split_combine kernel is not made in variants"),
        ("schema = 1", "schema = 2", "schema is 2"),
        ("schema = 1", "schema = ", "not valid TOML"),
    ],
)
def test_bad_tables_are_rejected(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in TABLE
    with pytest.raises(TableError, match=message):
        load(tmp_path, TABLE.replace(old, new))
