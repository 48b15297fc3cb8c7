"""On which GPU the kernel tests run: not on one whose installed kernels are a few for a sign of life."""

from __future__ import annotations

from pathlib import Path

import pytest

from ck.plan import plan_units
from flash_attn_rocm.archs import load_arch
from tests.api.fake_runtime import kernel, manifest, write_kernels
from tests.conftest import why_no_tests_on


def install(root: Path, gfx: str, profile: str) -> dict[str, Path]:
    """The kernels.json of a profile's plan, as far as coverage reads it."""
    specs = [spec for unit in plan_units(load_arch(gfx), profile) for spec in unit.specs]
    fields = ("op", "dtype", "mode", "mask", "bias", "softcap", "dropout", "padding", "page", "deterministic")
    rows = [
        kernel(spec.name, hdim_q=spec.variant.hdim, **{field: getattr(spec.variant, field) for field in fields})
        for spec in specs
    ]
    write_kernels(root, manifest(rows, gfx=gfx, profile=profile), gfx=gfx)
    return {gfx: root / gfx / "kernels.json"}


@pytest.mark.parametrize(("gfx", "profile"), [("gfx1201", "ci"), ("gfx942", "full"), ("gfx1151", "full")])
def test_gpus_with_enough_kernels(tmp_path: Path, gfx: str, profile: str) -> None:
    assert why_no_tests_on(gfx, install(tmp_path, gfx, profile)) is None


@pytest.mark.parametrize(
    ("gfx", "profile", "reason"),
    [
        ("gfx942", "ci", "(profile ci) do not cover forward with ALiBi up to d128"),
        ("gfx950", "ci", "(profile ci) do not cover forward up to d128"),
        ("gfx1201", "inference", "(profile inference) do not cover forward with dropout"),
    ],
)
def test_gpus_with_few_kernels(tmp_path: Path, gfx: str, profile: str, reason: str) -> None:
    found = why_no_tests_on(gfx, install(tmp_path, gfx, profile)) or ""
    assert reason in found
    assert found.endswith(f"./pixiw run build --arch {gfx} --profile full")


def test_a_gpu_without_kernels(tmp_path: Path) -> None:
    assert "not installed" in str(why_no_tests_on("gfx942", install(tmp_path, "gfx1201", "ci")))
