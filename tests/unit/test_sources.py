"""The files each package is made from: every script that really runs is among them, and a change of one is noticed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.buildlib import output_files, sources
from scripts.buildlib.sources import changed_since_build, find_scripts, hash_sources, list_sources, write_record

ROOT = Path(__file__).resolve().parents[2]

# Python itself says what a stage imports: each import statement in the stage's function is run.
_RUN_IMPORTS = """
import ast, inspect, json, sys, textwrap
import scripts.build, scripts.buildlib.output_files as output_files
function = ast.parse(textwrap.dedent(inspect.getsource(getattr(output_files, "_" + sys.argv[1]))))
for node in ast.walk(function):
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        exec(ast.unparse(node))
print(json.dumps([module.__file__ for module in list(sys.modules.values()) if getattr(module, "__file__", None)]))
"""


@pytest.mark.parametrize("stage", output_files.FILE_STAGES)
def test_every_script_that_a_stage_imports_is_keyed(stage: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _RUN_IMPORTS, stage],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
    )
    ours = {Path(name) for name in json.loads(done.stdout) if Path(name).is_relative_to(ROOT)}
    imported = {path for path in ours if path.relative_to(ROOT).parts[0] in ("scripts", "ck", "src")}
    assert len(imported) > 3
    assert imported <= set(list_sources(stage))


def test_scripts_of_the_kernels_are_those_that_compile_and_not_those_that_pack() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in find_scripts("kernels")}
    assert {"scripts/build.py", "scripts/buildlib/compile_job.py", "scripts/buildlib/toolchains/conda.py"} <= names
    assert not names & {"scripts/buildlib/pipeline.py", "scripts/buildlib/packages.py", "scripts/buildlib/host.py"}
    assert ROOT / "scripts/buildlib/kernels.py" not in find_scripts("host")


def test_every_pattern_matches_files() -> None:
    for stage, patterns in sources.SOURCES.items():
        for pattern in patterns:
            assert any(path.is_file() for path in ROOT.glob(pattern)), (stage, pattern)


def test_a_checked_out_submodule_is_no_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    monkeypatch.setattr(sources, "find_scripts", lambda _: set())
    for name in ("ck/plan.py", "ck/composable_kernel/include/core.hpp"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert list(hash_sources("kernels")) == ["ck/plan.py"]


def test_changed_new_and_removed_files_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    monkeypatch.setattr(sources, "find_scripts", lambda _: set())
    record = tmp_path / "build" / "sources.json"
    assert changed_since_build(["host"], record) == ["all of host: sources.json is missing"]
    host = tmp_path / "csrc" / "host"
    host.mkdir(parents=True)
    for name in ("same", "changed", "removed"):
        (host / name).write_text(name, encoding="utf-8")
    write_record(sources.hash_all_sources(), record)
    assert changed_since_build(["host", "emulator"], record) == []
    (host / "changed").write_text("again", encoding="utf-8")
    (host / "removed").unlink()
    (host / "new").touch()
    assert changed_since_build(["emulator"], record) == []
    assert changed_since_build(["host"], record) == [f"csrc/host/{name}" for name in ("changed", "new", "removed")]
