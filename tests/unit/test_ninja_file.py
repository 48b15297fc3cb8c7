"""build.ninja: what it says, and that ninja itself reads it as meant."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from scripts.buildlib.commands import find_program
from scripts.buildlib.compile_job import Job, load_job
from scripts.buildlib.ninja_file import escape, render_ninja, write_if_changed

JOB = Job(
    "unit", "/w/unit.hip", "/o/unit.co", "/w", ("clang++", "-O3"), ("-O3",), {"clang": "22"}, {"ck": "/c"}, "/cache"
)


def test_edges_come_in_the_given_order() -> None:
    text = render_ninja([JOB, replace(JOB, unit="second", output="/o/second.co")], "python", "job.py")
    assert text.index("build /o/unit.co:") < text.index("build /o/second.co:")
    assert "deps = gcc" in text


def test_characters_special_to_ninja_are_escaped() -> None:
    assert escape("C:/my dir/$x") == "C$:/my$ dir/$$x"


def test_ninja_runs_the_job_rebuilds_on_change_and_rests_otherwise(tmp_path: Path) -> None:
    work = tmp_path / "my work $1"
    work.mkdir()
    script = work / "job.py"
    script.write_text(
        "import json, sys\njob = json.load(open(sys.argv[1]))\n"
        "open(job['output'], 'w').write('x')\n"
        "open(job['work'] + '/unit.d', 'w').write(job['output'].replace(' ', '\\\\ ').replace('$', '$$') + ': ')\n"
    )
    job = replace(JOB, source=str(work / "unit.hip"), output=str(work / "unit.co"), work=str(work))
    Path(job.source).touch()
    job.work_file(".job.json").write_text(job.to_json())
    (work / "build.ninja").write_text(render_ninja([job], sys.executable, str(script)))

    def run() -> str:
        command = [find_program("ninja"), "-C", work]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "unit" in run().splitlines()[-1]
    assert "no work to do" in run()
    job.work_file(".job.json").write_text(replace(job, flags=("-O2",)).to_json())
    assert "no work to do" not in run()


def test_job_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text(JOB.to_json())
    loaded = load_job(path)
    assert loaded.to_json() == JOB.to_json()
    assert list(loaded.command) == list(JOB.command)


def test_unchanged_text_keeps_the_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    write_if_changed(path, "a")
    before = path.stat().st_mtime_ns
    write_if_changed(path, "a")
    assert path.stat().st_mtime_ns == before
    write_if_changed(path, "b")
    assert path.read_text() == "b"
