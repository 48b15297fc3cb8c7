"""The recipe renders into the packages of the design, on both platforms, without knowing any GPU."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from flash_attn_rocm.archs import load_arch, load_archs
from scripts.buildlib.packages import Output, render_outputs, variant_choices

ROOT = Path(__file__).resolve().parents[2]


def _recipe(outputs: list[Output], name: str) -> dict[str, Any]:
    (found,) = [output for output in outputs if output.name == name]
    recipe: dict[str, Any] = found.rendered.recipe.to_dict()
    return recipe


def test_linux_makes_all_packages_kernels_first(outputs: list[Output]) -> None:
    names = [output.name for output in outputs]
    kernels = [f"flash-attn-rocm-kernels-{gfx}" for gfx in load_archs()]
    assert names[: len(kernels)] == kernels
    assert names[-3:] == ["flash-attn-rocm", "flash-attn-rocm-emulator", "flash-attn-rocm-compat"]
    assert set(names[len(kernels) : -3]) == {"flash-attn-rocm-kernels"}


def test_windows_makes_the_same_kernel_packages(outputs: list[Output]) -> None:
    windows = render_outputs(variant_choices(list(load_archs().values()), {}), "win-64")
    assert "flash-attn-rocm-emulator" not in {output.name for output in windows}
    noarch = {output.file_name for output in outputs if output.subdir == "noarch"}
    assert {output.file_name for output in windows if output.subdir == "noarch"} == noarch
    (main,) = [output for output in windows if output.subdir != "noarch"]
    assert (main.name, main.subdir) == ("flash-attn-rocm", "win-64")


def test_windows_from_linux_needs_nothing_that_only_windows_can_run(outputs: list[Output]) -> None:
    """Its environment of the target is empty: MinGW-w64 and torch's wheel are the build script's to find."""
    windows = render_outputs(variant_choices(list(load_archs().values()), {}), "win-64")
    (main,) = [output for output in windows if output.subdir == "win-64"]
    assert main.requirements.get("host", []) == []
    assert not [spec for spec in main.requirements["build"] if "win-64" in spec or "vs20" in spec]
    (linux,) = [output for output in outputs if output.name == main.name]
    assert main.requirements["run"] == linux.requirements["run"]


def test_recipe_names_no_gpu() -> None:
    text = (ROOT / "recipe" / "recipe.yaml").read_text(encoding="utf-8")
    assert re.findall(r"gfx\d\w*|\d+\.\d+\.\d+(?<!0\.1\.0)", text.replace("0.1.0", "")) == []


def test_selector_is_constrained_and_not_required(outputs: list[Output]) -> None:
    for gfx in load_archs():
        selectors = [output for output in outputs if output.name == "flash-attn-rocm-kernels"]
        (selector,) = [output for output in selectors if output.build_string.startswith(f"{gfx}_")]
        requirements = selector.rendered.recipe.to_dict()["requirements"]
        every = "|".join(f"=={arch.amdgpu_arch}" for arch in load_archs().values())
        own = f"__amdgpu_arch =={load_arch(gfx).amdgpu_arch}"
        assert requirements["run_constraints"] == [own, f"__amdgpu_arch {every}"]
        assert requirements["run"] == [f"flash-attn-rocm-kernels-{gfx} =={selector.version}"]


def test_main_package_has_no_python_and_no_torch_axis(outputs: list[Output]) -> None:
    recipe = _recipe(outputs, "flash-attn-rocm")
    assert recipe["build"]["python"]["version_independent"] is True
    run = recipe["requirements"]["run"]
    assert "python >=3.11" in run
    assert "pytorch >=2.11" in run
    (main,) = [output for output in outputs if output.name == "flash-attn-rocm"]
    assert set(main.rendered.variant) == {"target_platform"}


@pytest.mark.parametrize("setting", ["build_cache", "ck_root", "max_jobs"])
def test_places_and_speed_change_no_package(outputs: list[Output], setting: str) -> None:
    other = render_outputs(variant_choices(list(load_archs().values()), {setting: "7"}))
    assert [output.file_name for output in other] == [output.file_name for output in outputs]


@pytest.mark.parametrize(
    ("settings", "stages", "variable"),
    [
        ({"build_cache": "/c"}, ("kernels", "host", "emulator"), ("FLASH_ATTN_ROCM_CACHE", "/c")),
        ({"max_jobs": "3"}, ("kernels", "host", "emulator"), ("MAX_JOBS", "3")),
        ({"ck_root": "/mine"}, ("kernels",), ("CK_ROOT", "/mine")),
        ({"opt_dim": "64"}, ("kernels",), ("OPT_DIM", "64")),
        ({"profile": "full"}, ("kernels",), ("FA_PROFILE", "full")),
    ],
)
def test_settings_reach_the_build_scripts(
    settings: dict[str, str], stages: tuple[str, ...], variable: tuple[str, str]
) -> None:
    """rattler-build hands on no variable of the caller: what is not named in the recipe is lost."""
    found = render_outputs(variant_choices(list(load_archs().values()), settings))
    for output in found:
        if output.stage in stages:
            assert output.rendered.recipe.to_dict()["build"]["script"]["env"][variable[0]] == variable[1], output.name


@pytest.mark.parametrize("settings", [{"profile": "full", "opt_dim": "64"}, {"ck_tree": "0123456789ab"}])
def test_profile_head_dims_and_ck_change_only_kernels(outputs: list[Output], settings: dict[str, str]) -> None:
    other = render_outputs(variant_choices(list(load_archs().values()), settings))
    changed = {old.name for old, new in zip(outputs, other, strict=True) if old.file_name != new.file_name}
    assert changed == {f"flash-attn-rocm-kernels-{gfx}" for gfx in load_archs()}


@pytest.mark.parametrize("manifest", ["pyproject.toml", "pixi.toml"])
def test_one_version_everywhere(manifest: str, outputs: list[Output]) -> None:
    table = tomllib.loads((ROOT / manifest).read_text(encoding="utf-8"))
    version = table["project" if manifest == "pyproject.toml" else "workspace"]["version"]
    assert {output.version for output in outputs} == {version}


def test_build_script_only_calls_the_build_program() -> None:
    lines = (ROOT / "recipe" / "build.sh").read_text(encoding="utf-8").splitlines()
    assert len(lines) < 10
    assert "scripts/build.py" in lines[-1]


def test_no_build_copies_the_history(outputs: list[Output]) -> None:
    """It may hold thousands of files: copied for each package they took more than the rest of its build."""
    for output in outputs:
        (source,) = output.rendered.recipe.to_dict()["source"]
        assert source["filter"]["exclude"] == [".git/**"]


def test_licences_name_everything_that_is_compiled_in(outputs: list[Output]) -> None:
    """As THIRD_PARTY_NOTICES.md says; NCSA is the device libraries', GPL with the exception is libstdc++'s."""
    licences = {output.stage: output.rendered.recipe.to_dict()["about"]["license"] for output in outputs}
    assert licences == {
        "kernels": "BSD-3-Clause AND MIT AND NCSA",
        "selector": "BSD-3-Clause",
        "host": "BSD-3-Clause AND MIT",
        "emulator": "BSD-3-Clause AND GPL-3.0-only WITH GCC-exception-3.1",
        "compat": "BSD-3-Clause",
    }


def test_recipe_names_no_host() -> None:
    for path in (ROOT / "recipe").iterdir():
        if path.is_file():
            assert "://" not in path.read_text(encoding="utf-8"), path
