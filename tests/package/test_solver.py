"""Which kernels a solver chooses: the recipe's own metadata, of every GPU, in empty packages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
import rattler_build

from flash_attn_rocm.archs import load_archs
from scripts.buildlib.conda_calls import CondaError, index_channel, solve
from scripts.buildlib.packages import VARIANTS, Output, needed_names, render_outputs

AMDGPU_ARCHS = {gfx: arch.amdgpu_arch for gfx, arch in load_archs().items()}
FLASH_ATTN_VERSIONS = ("0.0.1", "1.0.0rc1", "2.8.3", "2.8.3.post2", "99")
NO_GPU = {"CONDA_OVERRIDE_AMDGPU": "", "CONDA_OVERRIDE_AMDGPU_ARCH": ""}


def _gpu(amdgpu_arch: str) -> dict[str, str]:
    """Variables that make a solver see this GPU, whatever is in the machine."""
    return {"CONDA_OVERRIDE_AMDGPU": "0", "CONDA_OVERRIDE_AMDGPU_ARCH": amdgpu_arch}


GFX1201 = _gpu("12.0.1")
UNSUPPORTED = _gpu("9.0.6")


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
    choices = rattler_build.VariantConfig.from_file(VARIANTS).combinations()
    outputs = render_outputs(choices)
    _assemble(folder, outputs)
    for name in needed_names(outputs):
        rattler_build.assemble_package(name, "99", "linux-64", "0", folder / "linux-64", files_dir=folder / "empty")
    for version in FLASH_ATTN_VERSIONS:
        rattler_build.assemble_package(
            "flash-attn", version, "linux-64", "0", folder / "linux-64", files_dir=folder / "empty"
        )
    windows = [output for output in render_outputs(choices, "win-64") if output.subdir == "win-64"]
    _assemble(folder, windows)
    for name in needed_names([*outputs, *windows]):
        rattler_build.assemble_package(name, "99", "win-64", "0", folder / "win-64", files_dir=folder / "empty")
    index_channel(folder)
    return f"file://{folder}"


def _kernels(channel: str, environment: dict[str, str], *specs: str) -> set[str]:
    chosen = solve([channel], ["flash-attn-rocm", *specs], environment=environment)
    return {row["name"].removeprefix("flash-attn-rocm-kernels-") for row in chosen if "-kernels-" in row["name"]}


def test_the_tables_have_what_rattler_and_conda_detect() -> None:
    """Major, minor and stepping, as the HIP runtime counts them; a gfx name ends in the latter two in hexadecimal."""
    named = {gfx: f"{gfx[3:-2]}.{int(gfx[-2], 16)}.{int(gfx[-1], 16)}" for gfx in AMDGPU_ARCHS}
    assert named == AMDGPU_ARCHS
    assert named["gfx90a"] == "9.0.10"


@pytest.mark.parametrize("gfx", AMDGPU_ARCHS)
def test_the_gpu_in_the_machine_gets_its_kernels(channel: str, gfx: str) -> None:
    assert _kernels(channel, _gpu(AMDGPU_ARCHS[gfx])) == {gfx}


@pytest.mark.parametrize("gfx", ["gfx942", "gfx1100", "gfx1200"])
def test_kernels_are_chosen_by_hand_through_the_build_string(channel: str, gfx: str) -> None:
    assert _kernels(channel, NO_GPU, f"flash-attn-rocm-kernels=*={gfx}*") == {gfx}


def test_a_machine_without_a_gpu_can_install(channel: str) -> None:
    assert len(_kernels(channel, NO_GPU)) == 1


def test_kernels_of_several_gpus_are_installed_side_by_side(channel: str) -> None:
    """Two different cards in one machine: the virtual package names the larger one."""
    assert _kernels(channel, GFX1201, "flash-attn-rocm-kernels-gfx942") == {"gfx1201", "gfx942"}
    every = [f"flash-attn-rocm-kernels-{gfx}" for gfx in AMDGPU_ARCHS]
    assert _kernels(channel, NO_GPU, *every) == set(AMDGPU_ARCHS)


def test_an_unsupported_gpu_is_a_conflict_that_names_it_and_what_exists(channel: str) -> None:
    with pytest.raises(CondaError) as raised:
        _kernels(channel, UNSUPPORTED)
    text = str(raised.value)
    assert "__amdgpu_arch 9.0.6" in text
    (constraint,) = [line for line in text.splitlines() if "__amdgpu_arch ==" in line]
    assert set(re.findall(r"==([\d.]+)", constraint)) == set(AMDGPU_ARCHS.values())


def test_kernels_for_another_gpu_than_the_machine_has_conflict(channel: str) -> None:
    with pytest.raises(CondaError, match=r"gfx942(.|\n)*__amdgpu_arch ==9\.4\.2"):
        _kernels(channel, GFX1201, "flash-attn-rocm-kernels=*=gfx942*")


def test_windows_chooses_the_same_kernels(channel: str) -> None:
    chosen = solve([channel], ["flash-attn-rocm-kernels"], "win-64", GFX1201)
    assert {row["build"].split("_")[0] for row in chosen if row["name"] == "flash-attn-rocm-kernels"} == {"gfx1201"}


@pytest.mark.parametrize("gfx", AMDGPU_ARCHS)
def test_windows_installs_the_program_and_the_kernels_of_its_gpu(channel: str, gfx: str) -> None:
    chosen = solve([channel], ["flash-attn-rocm-compat"], "win-64", _gpu(AMDGPU_ARCHS[gfx]))
    subdirs = {row["name"]: row["subdir"] for row in chosen}
    own = {name: subdir for name, subdir in subdirs.items() if name.startswith("flash-attn-rocm")}
    noarch = ("flash-attn-rocm-compat", "flash-attn-rocm-kernels", f"flash-attn-rocm-kernels-{gfx}")
    assert own == {"flash-attn-rocm": "win-64", **dict.fromkeys(noarch, "noarch")}


@pytest.mark.parametrize("spec", ["flash-attn-rocm-emulator"])
def test_windows_lacks_what_is_for_linux_alone(channel: str, spec: str) -> None:
    with pytest.raises(CondaError, match=spec):
        solve([channel], [spec], "win-64", NO_GPU)


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
