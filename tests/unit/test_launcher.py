"""sccache before the compiler: when it is, what it gets to run, and that nothing else changes."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from scripts import kernels as command
from scripts.buildlib.errors import CompileError
from scripts.buildlib.launcher import LauncherError, find_launcher
from tests.unit.conftest import PROFILE, Workshop
from tests.unit.fake_toolchain import write_script


@pytest.fixture
def sccache(tmp_path: Path) -> Path:
    """Stands for sccache: notes what it is given and runs it."""
    text = '#!/bin/sh\necho "$SCCACHE_C_CUSTOM_CACHE_BUSTER $*" >> "$0.log"\nexec "$@"\n'
    return write_script(tmp_path / "tools" / "sccache", text)


def _environment(sccache: Path, **variables: str) -> dict[str, str]:
    return {"PATH": str(sccache.parent), "HOME": str(sccache.parent), **variables}


def test_without_configuration_compiles_run_directly(sccache: Path) -> None:
    assert find_launcher(None, _environment(sccache)) == ()
    assert find_launcher(None, _environment(sccache, SCCACHE_DIR="")) == ()


@pytest.mark.parametrize("variable", ["SCCACHE_DIR", "SCCACHE_BUCKET", "SCCACHE_GHA_ENABLED", "SCCACHE_REDIS_ENDPOINT"])
def test_any_variable_of_its_own_configures_it(sccache: Path, variable: str) -> None:
    assert find_launcher(None, _environment(sccache, **{variable: "x"})) == (str(sccache),)
    assert find_launcher("off", _environment(sccache, **{variable: "x"})) == ()


def test_its_configuration_file_configures_it(sccache: Path) -> None:
    config = sccache.parent / ".config" / "sccache" / "config"
    config.parent.mkdir(parents=True)
    config.write_text("[dist]\n")
    assert find_launcher(None, _environment(sccache)) == (str(sccache),)


def test_another_program_by_variable_or_option(sccache: Path) -> None:
    env = _environment(sccache, PATH="/nowhere")
    assert find_launcher(None, {**env, "SCCACHE_PATH": str(sccache)}) == (str(sccache),)
    assert find_launcher(str(sccache), env) == (str(sccache),)


def test_configured_but_absent_is_an_error(sccache: Path) -> None:
    env = _environment(sccache, PATH="/nowhere", SCCACHE_DIR="x")
    with pytest.raises(LauncherError, match=r"sccache was not found, and it is configured by SCCACHE_\* variables"):
        find_launcher(None, env)
    with pytest.raises(LauncherError, match="/no/tool was not found, and --launcher names it"):
        find_launcher("/no/tool", env)


def test_compiles_run_through_it_and_make_the_same(workshop: Workshop, sccache: Path) -> None:
    direct = workshop.build("direct", hdims=(64,))
    (workshop.ck.include / "ck_tile" / "core.hpp").write_text("// core, again\n")
    launched = workshop.build("launched", hdims=(64,), launcher=(str(sccache),))
    assert len(launched.compiled) == 2
    assert workshop.compiles() == 4
    for path in (workshop.root / "direct" / "gfx1201").glob("*.co"):
        assert (workshop.root / "launched" / "gfx1201" / path.name).read_bytes() == path.read_bytes()
    assert launched.manifests["gfx1201"].read_bytes() == direct.manifests["gfx1201"].read_bytes()
    buster, *words = sccache.with_suffix(".log").read_text().splitlines()[0].split()
    assert len(buster) == 64  # stands for compiler libraries and bitcode, which sccache does not look at
    assert words[0] == str(workshop.toolchain.clangxx)
    assert "-c" in words
    assert not [word for word in words if word.startswith(("-M", "-Xclang"))]


def test_what_was_compiled_through_it_is_remembered_with_its_headers(workshop: Workshop, sccache: Path) -> None:
    core = workshop.ck.include / "ck_tile" / "core.hpp"
    workshop.build(hdims=(64,), launcher=(str(sccache),))
    assert len(workshop.build("elsewhere", hdims=(64,)).cached) == 2
    core.write_text("// newer core\n")
    assert len(workshop.build(hdims=(64,), launcher=(str(sccache),)).compiled) == 2


def test_the_command_names_a_program_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--launcher", "/no/tool"]) == 2
    assert "/no/tool was not found" in capsys.readouterr().err


@pytest.mark.parametrize("what", ["--dry-run", "--report", "--sizes"])
def test_who_compiles_nothing_needs_no_launcher(
    workshop: Workshop, what: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    workshop.build()
    monkeypatch.setenv("SCCACHE_DIR", "x")
    monkeypatch.setenv("SCCACHE_PATH", "/no/sccache")
    monkeypatch.delenv("FLASH_ATTN_ROCM_LLVM_OBJDUMP", raising=False)
    monkeypatch.setattr(command, "find_objdump", lambda: None)
    out = str(workshop.root / "out")
    assert command.main([what, "--profile", PROFILE, "--arch", "gfx1201", "--out", out]) == 0
    assert capsys.readouterr().out


def test_a_failure_shows_the_command_that_ran(workshop: Workshop, sccache: Path) -> None:
    write_script(sccache, '#!/bin/sh\necho "$*" >> "$0.log"\necho "error: no server" >&2\nexit 2\n')
    with pytest.raises(CompileError) as error:
        workshop.build(hdims=(64,), launcher=(str(sccache),), max_jobs=1)
    launcher, *rest = shlex.split(error.value.command)
    assert launcher == str(sccache)
    assert " ".join(rest) in sccache.with_suffix(".log").read_text().splitlines()
    assert rest[-1] == "-c"
