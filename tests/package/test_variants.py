"""recipe/variants.yaml is what the generator makes of the GPU tables."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import rattler_build

from flash_attn_rocm.archs import load_archs

ROOT = Path(__file__).resolve().parents[2]


def test_checked_in_file_is_what_the_generator_makes() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "recipe" / "gen_variants.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_gpu_is_one_variant_with_its_own_virtual_package_version() -> None:
    combinations = rattler_build.VariantConfig.from_file(ROOT / "recipe" / "variants.yaml").combinations()
    assert {row["gfx"]: row["amdgpu_arch"] for row in combinations} == {
        arch.gfx: arch.amdgpu_arch for arch in load_archs().values()
    }
    assert len(combinations) == len(load_archs())
