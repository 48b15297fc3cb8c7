"""The whole kernel build with a make-believe compiler: units, cache, manifests, failures and the command line."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from ck.plan import plan_units
from flash_attn_rocm.archs import load_arch
from scripts import kernels as command
from scripts.buildlib import kernels
from scripts.buildlib.errors import BuildError, CompileError
from scripts.buildlib.reproducible import check_reproducible, smallest_unit
from tests.unit.conftest import PROFILE, Workshop
from tests.unit.fake_toolchain import write_script


def test_unchanged_input_is_never_compiled_twice(workshop: Workshop) -> None:
    first = workshop.build(hdims=(64,))
    assert (len(first.compiled), len(first.cached), first.kernels) == (2, 0, 12)
    again = workshop.build(hdims=(64,))
    assert (len(again.compiled), len(again.up_to_date)) == (0, 2)
    elsewhere = workshop.build("clean checkout", hdims=(64,))
    assert (len(elsewhere.compiled), len(elsewhere.cached)) == (0, 2)
    assert workshop.compiles() == 2
    assert elsewhere.manifests["gfx1201"].read_bytes() == first.manifests["gfx1201"].read_bytes()


def test_changed_header_compiles_again_and_changed_back_does_not(workshop: Workshop) -> None:
    core = workshop.ck.include / "ck_tile" / "core.hpp"
    workshop.build(hdims=(64,))
    core.write_text("// newer core\n")
    assert len(workshop.build(hdims=(64,)).compiled) == 2
    core.write_text("// core\n")
    assert len(workshop.build(hdims=(64,)).cached) == 2
    assert workshop.compiles() == 4


def test_what_was_read_while_it_changed_is_not_remembered(workshop: Workshop) -> None:
    core = workshop.ck.include / "ck_tile" / "core.hpp"
    core.write_text("// TOUCH\n")
    workshop.build(hdims=(64,))
    assert len(workshop.build("elsewhere", hdims=(64,)).compiled) == 2
    core.write_text("// quiet\n")
    workshop.build(hdims=(64,))
    assert len(workshop.build("a third place", hdims=(64,)).cached) == 2


def test_manifest_and_code_objects_are_all_that_is_left_for_a_gpu(workshop: Workshop) -> None:
    build = workshop.build()
    manifest = json.loads(build.manifests["gfx1201"].read_text())
    assert len(manifest["kernels"]) == 24
    assert (manifest["ck"], manifest["compiler"]) == ("tiny-ck 1.0", "clang version 22.1.8")
    workshop.build(hdims=(128,))
    left = {path.name for path in (workshop.root / "out" / "gfx1201").iterdir()}
    assert left == {"kernels.json", "fmha_fwd_gfx1201_bf16_d128.co", "fmha_fwd_gfx1201_fp16_d128.co"}


def test_failure_shows_the_first_error_whole_and_the_command(workshop: Workshop) -> None:
    (workshop.ck.include / "ck_tile" / "core.hpp").write_text("BROKEN\n")
    with pytest.raises(CompileError) as error:
        workshop.build(hdims=(64,), max_jobs=1)
    text = str(error.value)
    assert "error: BROKEN is not a type\n  note: first" in text
    assert "a second error" not in text
    assert f"{workshop.toolchain.clangxx} -x hip --offload-arch=gfx1201" in text
    source = workshop.root / "out" / "work" / "gfx1201" / f"{error.value.unit}.hip"
    assert str(source) in error.value.command
    assert "a second error" in source.with_suffix(".log").read_text()
    assert error.value.exit_code == 1
    assert not list((workshop.root / "out" / "gfx1201").glob("*.co"))


def test_repaired_input_builds_after_a_failure(workshop: Workshop) -> None:
    core = workshop.ck.include / "ck_tile" / "core.hpp"
    core.write_text("BROKEN\n")
    with pytest.raises(CompileError):
        workshop.build(hdims=(64,))
    core.write_text("// core\n")
    assert len(workshop.build(hdims=(64,)).compiled) == 2


CHOSEN = ("--profile", PROFILE, "--arch", "gfx1201")


def run_command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = command.main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--profile", "nope"), "profile 'nope' is not available; allowed: smoke, ci, inference, full"),
        (("--arch", "gfx000"), "GPU_ARCHS is 'gfx000'"),
        (("--hdim", "48"), "head dim 48 is not available; allowed: 32, 64, 96, 128"),
        (("--jobs", "none"), "MAX_JOBS is 'none'"),
        (("--report", "--out", "/nowhere"), "Build them first: ./pixiw run kernels"),
    ],
)
def test_bad_requests_exit_with_2_and_say_what_is_allowed(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    code, _, err = run_command(capsys, *arguments)
    assert code == 2
    assert message in err


def test_dry_run_prints_units_with_cost_and_compiles_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    chosen = ("--profile", "smoke", "--arch", "gfx1201")
    code, out, _ = run_command(capsys, "--dry-run", *chosen, "--jobs", "1", "--out", str(tmp_path / "out"))
    assert code == 0
    for text in ("fmha_fwd_gfx1201_bf16_d128", "CPU-s", "MiB", "16", "1 compiles at once, limited by MAX_JOBS"):
        assert text in out
    assert not (tmp_path / "out").exists()


def test_report_lists_every_kernel_with_its_registers(capsys: pytest.CaptureFixture[str], workshop: Workshop) -> None:
    workshop.build()
    code, out, _ = run_command(capsys, "--report", *CHOSEN, "--out", str(workshop.root / "out"))
    assert code == 0
    assert out.count("fmha_fwd_gfx1201_") == 24
    assert "146" in out
    assert "compiler: clang version 22.1.8" in out


def test_sizes_are_installed_and_packed_as_a_whole(capsys: pytest.CaptureFixture[str], workshop: Workshop) -> None:
    built = workshop.build()
    directory = built.manifests["gfx1201"].parent
    noise = random.Random(0).randbytes(3_000_000)  # does not compress, but twice the same is once
    for name in ("fmha_fwd_gfx1201_bf16_d64.co", "fmha_fwd_gfx1201_fp16_d64.co"):
        (directory / name).write_bytes(noise)
    code, out, _ = run_command(capsys, "--sizes", *CHOSEN, "--out", str(workshop.root / "out"))
    assert code == 0
    (row,) = [line for line in out.splitlines() if "gfx1201" in line]
    gpu, profile, kernels, objects, installed, download = row.strip("│ ").replace("│", " ").split()
    assert (gpu, profile, kernels, objects) == ("gfx1201", PROFILE, "24", "4")
    assert 6.0 <= float(installed) < 6.2
    assert 3.0 <= float(download) < 3.1


def test_a_compiler_that_writes_paths_into_its_output_is_found_out(workshop: Workshop) -> None:
    arch = load_arch("gfx1201")
    unit = smallest_unit(plan_units(arch, PROFILE))
    assert len(unit.specs) == 1
    assert len(check_reproducible(arch, unit, workshop.toolchain, workshop.ck)) == 64
    assert workshop.compiles() == 2
    (workshop.ck.include / "ck_tile" / "core.hpp").write_text("// LEAK\n")
    with pytest.raises(BuildError, match="gave two code objects"):
        check_reproducible(arch, unit, workshop.toolchain, workshop.ck)


def test_the_check_of_paths_searches_the_overlay_first(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the build does: without it nothing compiles for the GPUs of some families."""
    header = workshop.root / "overlay" / "gfx12" / "ck_tile" / "core.hpp"
    header.parent.mkdir(parents=True)
    header.write_text("// LEAK\n")
    monkeypatch.setattr(kernels, "find_overlay", lambda family, *_: workshop.root / "overlay" / family)
    arch = load_arch("gfx1201")
    with pytest.raises(BuildError, match="gave two code objects"):
        check_reproducible(arch, smallest_unit(plan_units(arch, PROFILE)), workshop.toolchain, workshop.ck)


def test_json_without_a_report_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run_command(capsys, "--json", "--dry-run")
    assert code == 2
    assert "--json is 'given without --report'" in err


@pytest.mark.parametrize(
    ("program", "why"), [(None, "No such file"), ("#!/bin/sh\necho cannot read it >&2\nexit 3\n", "cannot read it")]
)
def test_a_report_names_an_objdump_that_fails(
    workshop: Workshop,
    program: str | None,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    workshop.build()
    tool = workshop.root / "tools" / "llvm-objdump"
    if program:
        write_script(tool, program)
    monkeypatch.setenv("FLASH_ATTN_ROCM_LLVM_OBJDUMP", str(tool))
    code, out, err = run_command(capsys, "--report", *CHOSEN, "--out", str(workshop.root / "out"))
    assert (code, out) == (1, "")
    assert str(tool) in err
    assert why in err
    assert "Set FLASH_ATTN_ROCM_LLVM_OBJDUMP to an llvm-objdump of LLVM 20 or later" in err
