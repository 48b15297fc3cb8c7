"""Which kernels a solver chooses: the recipe's own metadata, with an invented second GPU, in empty packages."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
import rattler_build

from scripts.buildlib.conda_calls import CondaError, index_channel, solve
from scripts.buildlib.packages import VARIANTS, Output, needed_names, render_outputs

GFX1201 = {"CONDA_OVERRIDE_AMDGPU": "0", "CONDA_OVERRIDE_AMDGPU_ARCH": "12.0.1"}
INVENTED = {"CONDA_OVERRIDE_AMDGPU": "0", "CONDA_OVERRIDE_AMDGPU_ARCH": "99.9.9"}
UNSUPPORTED = {"CONDA_OVERRIDE_AMDGPU": "0", "CONDA_OVERRIDE_AMDGPU_ARCH": "9.0.6"}
FLASH_ATTN_VERSIONS = ("0.0.1", "1.0.0rc1", "2.8.3", "2.8.3.post2", "99")
NO_GPU = {"CONDA_OVERRIDE_AMDGPU": "", "CONDA_OVERRIDE_AMDGPU_ARCH": ""}


def _choice(gfx: str, amdgpu_arch: str) -> dict[str, str]:
    settings = rattler_build.VariantConfig.from_file(VARIANTS).combinations()[0]
    return {**settings, "gfx": gfx, "amdgpu_arch": amdgpu_arch}


def _assemble(folder: Path, outputs: Iterable[Output]) -> None:
    for output in outputs:
        requirements = output.rendered.recipe.to_dict().get("requirements", {})
        rattler_build.assemble_package(
            output.name,
            output.version,
            output.subdir,
            output.build_string,
            folder / output.subdir,
            files_dir=folder / "empty",
            depends=requirements.get("run", []),
            constrains=requirements.get("run_constraints", []),
            noarch="generic" if output.subdir == "noarch" else None,
        )


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("channel")
    (folder / "empty").mkdir()
    (folder / "empty" / "file").write_text("", encoding="utf-8")
    outputs = render_outputs([_choice("gfx1201", "12.0.1"), _choice("gfx9999", "99.9.9")])
    _assemble(folder, outputs)
    for name in needed_names(outputs):
        rattler_build.assemble_package(name, "99", "linux-64", "0", folder / "linux-64", files_dir=folder / "empty")
    for version in FLASH_ATTN_VERSIONS:
        rattler_build.assemble_package(
            "flash-attn", version, "linux-64", "0", folder / "linux-64", files_dir=folder / "empty"
        )
    index_channel(folder)
    return f"file://{folder}"


def _kernels(channel: str, environment: dict[str, str], *specs: str) -> set[str]:
    chosen = solve([channel], ["flash-attn-rocm", *specs], environment=environment)
    return {row["name"].removeprefix("flash-attn-rocm-kernels-") for row in chosen if "-kernels-" in row["name"]}


@pytest.mark.parametrize(("gpu", "gfx"), [(GFX1201, "gfx1201"), (INVENTED, "gfx9999")])
def test_the_gpu_in_the_machine_gets_its_kernels(channel: str, gpu: dict[str, str], gfx: str) -> None:
    assert _kernels(channel, gpu) == {gfx}


def test_a_machine_without_a_gpu_can_install(channel: str) -> None:
    assert len(_kernels(channel, NO_GPU)) == 1


def test_kernels_are_chosen_by_hand_through_the_build_string(channel: str) -> None:
    for gfx in ("gfx1201", "gfx9999"):
        assert _kernels(channel, NO_GPU, f"flash-attn-rocm-kernels=*={gfx}*") == {gfx}


def test_kernels_of_several_gpus_are_installed_side_by_side(channel: str) -> None:
    assert _kernels(channel, GFX1201, "flash-attn-rocm-kernels-gfx9999") == {"gfx1201", "gfx9999"}


def test_an_unsupported_gpu_is_a_conflict_that_names_it(channel: str) -> None:
    with pytest.raises(CondaError, match="__amdgpu_arch"):
        _kernels(channel, UNSUPPORTED)


def test_kernels_for_another_gpu_than_the_machine_has_conflict(channel: str) -> None:
    with pytest.raises(CondaError, match="__amdgpu_arch"):
        _kernels(channel, GFX1201, "flash-attn-rocm-kernels=*=gfx9999*")


def test_windows_chooses_the_same_kernels(channel: str) -> None:
    chosen = solve([channel], ["flash-attn-rocm-kernels"], "win-64", GFX1201)
    assert {row["build"].split("_")[0] for row in chosen if row["name"] == "flash-attn-rocm-kernels"} == {"gfx1201"}


@pytest.mark.parametrize("version", FLASH_ATTN_VERSIONS)
def test_the_name_flash_attn_has_one_provider(channel: str, version: str) -> None:
    both = ["flash-attn-rocm-compat", f"flash-attn =={version}"]
    for spec in both:
        assert solve([channel], [spec], environment=NO_GPU)
    with pytest.raises(CondaError, match="flash-attn"):
        solve([channel], both, environment=NO_GPU)


def test_the_drop_in_brings_the_functions_and_the_kernels(channel: str) -> None:
    chosen = {row["name"] for row in solve([channel], ["flash-attn-rocm-compat"], environment=GFX1201)}
    assert {"flash-attn-rocm", "flash-attn-rocm-kernels-gfx1201"} <= chosen
