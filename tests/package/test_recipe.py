"""The recipe renders into the packages of the design, on both platforms, without knowing any GPU."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from flash_attn_rocm.archs import load_arch, packaged_archs
from scripts.buildlib.packages import Output, render_outputs, variant_choices

ROOT = Path(__file__).resolve().parents[2]


def _recipe(outputs: list[Output], name: str) -> dict[str, Any]:
    (found,) = [output for output in outputs if output.name == name]
    recipe: dict[str, Any] = found.rendered.recipe.to_dict()
    return recipe


def test_linux_makes_all_packages_kernels_first(outputs: list[Output]) -> None:
    names = [output.name for output in outputs]
    kernels = [f"flash-attn-rocm-kernels-{gfx}" for gfx in packaged_archs()]
    assert names[: len(kernels)] == kernels
    assert names[-2:] == ["flash-attn-rocm", "flash-attn-rocm-emulator"]
    assert set(names[len(kernels) : -2]) == {"flash-attn-rocm-kernels"}


def test_windows_makes_the_same_kernel_packages(outputs: list[Output]) -> None:
    windows = render_outputs(variant_choices(list(packaged_archs().values()), {}), "win-64")
    assert "flash-attn-rocm-emulator" not in {output.name for output in windows}
    noarch = {output.file_name for output in outputs if output.subdir == "noarch"}
    assert {output.file_name for output in windows if output.subdir == "noarch"} == noarch
    (main,) = [output for output in windows if output.subdir != "noarch"]
    assert (main.name, main.subdir) == ("flash-attn-rocm", "win-64")


def test_recipe_names_no_gpu() -> None:
    text = (ROOT / "recipe" / "recipe.yaml").read_text(encoding="utf-8")
    assert re.findall(r"gfx\d\w*|\d+\.\d+\.\d+(?<!0\.1\.0)", text.replace("0.1.0", "")) == []


def test_selector_is_constrained_and_not_required(outputs: list[Output]) -> None:
    for gfx in packaged_archs():
        selectors = [output for output in outputs if output.name == "flash-attn-rocm-kernels"]
        (selector,) = [output for output in selectors if output.build_string.startswith(f"{gfx}_")]
        requirements = selector.rendered.recipe.to_dict()["requirements"]
        assert requirements["run_constraints"] == [f"__amdgpu_arch =={load_arch(gfx).amdgpu_arch}"]
        assert requirements["run"] == [f"flash-attn-rocm-kernels-{gfx} =={selector.version}"]


def test_main_package_has_no_python_and_no_torch_axis(outputs: list[Output]) -> None:
    recipe = _recipe(outputs, "flash-attn-rocm")
    assert recipe["build"]["python"]["version_independent"] is True
    run = recipe["requirements"]["run"]
    assert "python >=3.11" in run
    assert "pytorch >=2.11" in run
    (main,) = [output for output in outputs if output.name == "flash-attn-rocm"]
    assert set(main.rendered.variant) == {"target_platform"}


def test_object_cache_changes_no_package(outputs: list[Output]) -> None:
    cached = render_outputs(variant_choices(list(packaged_archs().values()), {"build_cache": "/some/where"}))
    assert [output.file_name for output in cached] == [output.file_name for output in outputs]


def test_profile_and_head_dims_change_only_kernels(outputs: list[Output]) -> None:
    other = render_outputs(variant_choices(list(packaged_archs().values()), {"profile": "full", "opt_dim": "64"}))
    changed = {old.name for old, new in zip(outputs, other, strict=True) if old.file_name != new.file_name}
    assert changed == {f"flash-attn-rocm-kernels-{gfx}" for gfx in packaged_archs()}


@pytest.mark.parametrize("manifest", ["pyproject.toml", "pixi.toml"])
def test_one_version_everywhere(manifest: str, outputs: list[Output]) -> None:
    table = tomllib.loads((ROOT / manifest).read_text(encoding="utf-8"))
    version = table["project" if manifest == "pyproject.toml" else "workspace"]["version"]
    assert {output.version for output in outputs} == {version}


def test_build_script_only_calls_the_build_program() -> None:
    lines = (ROOT / "recipe" / "build.sh").read_text(encoding="utf-8").splitlines()
    assert len(lines) < 10
    assert "scripts/build.py" in lines[-1]
