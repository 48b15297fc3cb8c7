"""Which backend runs, decided from facts alone."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from flash_attn_rocm import environment
from flash_attn_rocm.archs import load_archs
from flash_attn_rocm.backends import choice_for, choose
from flash_attn_rocm.cli import main
from flash_attn_rocm.errors import (
    BackendChoiceError,
    KernelsNotInstalledError,
    UnsupportedGpuError,
)

CPU: dict[str, Any] = {
    "device_type": "cpu",
    "hip": False,
    "gfx": None,
    "emulated": (),
    "override": None,
    "installed": ("gfx1201",),
}
ROCM = CPU | {"device_type": "cuda", "hip": True, "gfx": "gfx1201"}


def test_cpu_tensors_run_on_sdpa() -> None:
    assert choose(**CPU).backend == "sdpa"


def test_cpu_tensors_run_on_the_emulated_gpu_when_asked_for() -> None:
    choice = choose(**CPU | {"emulated": ("gfx1201",)})
    assert (choice.backend, choice.gfx) == ("ck", "gfx1201")
    assert "FLASH_ATTN_ROCM_EMULATE=gfx1201" in choice.reason


def test_an_nvidia_gpu_runs_on_sdpa() -> None:
    choice = choose(**CPU | {"device_type": "cuda"})
    assert choice.backend == "sdpa"
    assert "not an AMD GPU" in choice.reason


@pytest.mark.parametrize("device_type", ["mps", "xpu", "meta"])
def test_other_devices_run_on_sdpa(device_type: str) -> None:
    assert choose(**CPU | {"device_type": device_type}).backend == "sdpa"


@pytest.mark.parametrize("gfx", sorted(load_archs()))
def test_an_amd_gpu_follows_its_table(gfx: str) -> None:
    choice = choose(**ROCM | {"gfx": gfx, "installed": (gfx,)})
    assert choice.backend == load_archs()[gfx].forward_backend
    assert gfx in choice.reason


def test_the_override_wins_over_the_table() -> None:
    assert choose(**ROCM | {"override": "sdpa"}).backend == "sdpa"
    assert choose(**ROCM | {"override": "ck"}).backend == "ck"
    assert choose(**CPU | {"override": "sdpa", "emulated": ("gfx1201",)}).backend == "sdpa"


def test_an_amd_gpu_without_kernels_names_the_package_and_how_it_is_made() -> None:
    with pytest.raises(KernelsNotInstalledError) as raised:
        choose(**ROCM | {"gfx": "gfx1101", "installed": ()})
    assert "conda install flash-attn-rocm-kernels-gfx1101 (where no channel has it" in raised.value.fix
    assert "`GPU_ARCHS=gfx1101 ./pixiw run build --profile full`" in raised.value.fix


def test_errors_say_what_is_installed_and_what_is_known_of_the_gpu() -> None:
    posing = ROCM | {"gfx": "gfx1200", "installed": ("gfx942", "gfx1201"), "note": "The card poses"}
    with pytest.raises(KernelsNotInstalledError) as raised:
        choose(**posing)
    assert "installed: kernels for gfx1201, gfx942)" in str(raised.value)
    assert "The card poses. Install them: conda install flash-attn-rocm-kernels-gfx1200" in str(raised.value)
    with pytest.raises(UnsupportedGpuError, match=r"^The card poses: GPU 'gfx803' is not supported"):
        choose(**posing | {"gfx": "gfx803"})


def test_sdpa_needs_no_kernels() -> None:
    assert choose(**ROCM | {"installed": (), "override": "sdpa"}).backend == "sdpa"


def test_an_unknown_amd_gpu_is_an_error() -> None:
    with pytest.raises(UnsupportedGpuError, match=r"'gfx803' is not supported; supported: .*gfx1201"):
        choose(**ROCM | {"gfx": "gfx803"})


@pytest.mark.parametrize("emulated", [("gfx803",), ("GFX1201",), ("gfx1201", "gfx9999"), ("12.0.1",)])
@pytest.mark.parametrize("override", [None, "ck", "sdpa"])
def test_an_unknown_emulated_gpu_is_an_error(emulated: tuple[str, ...], override: str | None) -> None:
    message = rf"FLASH_ATTN_ROCM_EMULATE: GPU '{emulated[-1]}' is not supported; supported: .*gfx1201"
    with pytest.raises(UnsupportedGpuError, match=message):
        choose(**CPU | {"emulated": emulated, "override": override})


def test_ck_on_cpu_without_emulation_is_an_error() -> None:
    with pytest.raises(BackendChoiceError, match="FLASH_ATTN_ROCM_BACKEND=ck cannot be followed: CPU tensors"):
        choose(**CPU | {"override": "ck"})


@pytest.mark.parametrize("override", ["triton", "CK", " ck", "sdpa,ck"])
def test_an_unknown_override_is_an_error(override: str) -> None:
    with pytest.raises(BackendChoiceError, match=f"is '{override}'; allowed: ck; sdpa; ck,sdpa"):
        choose(**CPU | {"override": override})


def test_emulation_and_a_real_gpu_do_not_mix() -> None:
    with pytest.raises(BackendChoiceError, match="tensors are on a real GPU"):
        choose(**ROCM | {"emulated": ("gfx1201",)})


def test_the_list_of_emulated_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLASH_ATTN_ROCM_EMULATE", raising=False)
    assert environment.emulated_gpus() == ()
    monkeypatch.setenv("FLASH_ATTN_ROCM_EMULATE", "gfx1201, gfx942,")
    assert environment.emulated_gpus() == ("gfx1201", "gfx942")


@pytest.mark.parametrize(
    ("setting", "normal"),
    [("gfx1201, gfx1201", "gfx1201,gfx1201"), (" gfx1201 ,", "gfx1201"), (" ", ""), ("gfx1201", "gfx1201")],
)
def test_the_emulator_gets_the_list_without_blanks(monkeypatch: pytest.MonkeyPatch, setting: str, normal: str) -> None:
    monkeypatch.setenv("FLASH_ATTN_ROCM_EMULATE", setting)
    environment.normalise_emulated_gpus()
    assert os.environ["FLASH_ATTN_ROCM_EMULATE"] == normal


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (",", "is ',' and names no GPU; expected GPU names such as gfx1201"),
        (" , ,", "is ' , ,' and names no GPU"),
        ("gfx1201:xnack-", "names 'gfx1201:xnack-'; expected GPU names .*without feature suffixes"),
        ("gfx1201,gfx942:sramecc+:xnack-", "names 'gfx942:sramecc"),
    ],
)
def test_a_list_that_names_no_gpu_is_an_error_not_torchs_attention(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], setting: str, message: str
) -> None:
    monkeypatch.setenv("FLASH_ATTN_ROCM_EMULATE", setting)
    monkeypatch.setenv("FLASH_ATTN_ROCM_LIBRARY", "/nowhere/libflash_attn_rocm.so")
    with pytest.raises(BackendChoiceError, match=f"FLASH_ATTN_ROCM_EMULATE {message}"):
        choice_for("cpu", None)
    assert main(["info"]) == 1
    assert re.search(message, capsys.readouterr().out)
    assert main(["verify"]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_every_variable_is_read_by_its_one_name() -> None:
    """Reports show every variable of this package that its code mentions."""
    sources = Path(environment.__file__).parent.rglob("*.py")
    mentioned = {name for path in sources for name in re.findall(r"FLASH_ATTN_ROCM_[A-Z_]+", path.read_text("utf-8"))}
    assert mentioned == {name for name in environment.REPORTED if name.startswith("FLASH_ATTN_ROCM_")}


def test_no_variable_of_the_project_is_called_unknown() -> None:
    """In the sources of whatever reads one, every name with the prefix is known, but for those of macros."""
    root = Path(__file__).parents[2]
    folders = ("src", "csrc", "emulator", "scripts", "ck", "recipe", "compat")
    files = [p for folder in folders for p in (root / folder).rglob("*") if p.suffix in (".py", ".cpp", ".hpp", ".sh")]
    assert len(files) > 300
    text = "\n".join(path.read_text("utf-8") for path in [*files, root / "pixiw"])
    macros = {"FLASH_ATTN_ROCM_", "FLASH_ATTN_ROCM_VERSION", "FLASH_ATTN_ROCM_C_API_H"}
    assert set(re.findall(r"FLASH_ATTN_ROCM_[A-Z_]*", text)) - macros == set(environment.KNOWN)
