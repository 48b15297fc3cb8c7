"""The compiler launcher: hits from other checkouts and from nothing, misses when anything that counts changed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from scripts.buildlib.cache import CompileCache, Roots, parse_depfile
from scripts.buildlib.cached_compile import parse_compile, run_cached

# Writes the source's and the header's text into the object, a line into a log, and a depfile; fails for "error".
COMPILER = """
import os
import sys
from pathlib import Path
arguments = sys.argv[1:]
value = lambda name: Path(arguments[arguments.index(name) + 1])
with (Path(__file__).parent / "log").open("a") as log:
    log.write("compiled\\n")
if "-c" not in arguments:
    sys.exit(7)
source = value("-c").read_text()
if "error" in source:
    sys.exit(3)
header = value("-c").parent / "a.hpp"
value("-o").write_text(source + header.read_text() + " ".join(a for a in arguments if a.startswith("-D")))
value("-MF").write_text(f"{arguments[arguments.index('-MT') + 1]}: {value('-c')} {header}\\n")
"""


class Machine:
    """A compiler, a cache, and checkouts."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "compiler").mkdir()
        self.program = directory / "compiler" / "cc.py"
        self.program.write_text(COMPILER)

    def checkout(self, name: str, source: str = "source", header: str = "header") -> Path:
        root = self.directory / name
        root.mkdir(exist_ok=True)
        for file, text in (("a.cpp", source), ("a.hpp", header)):
            if not (root / file).exists() or (root / file).read_text() != text:
                (root / file).write_text(text)
                os.utime(root / file, (1, 1))
        return root

    def compile(self, root: Path, *flags: str, identity: str = "clang 22") -> tuple[int, Path]:
        output = root / "build" / "a.o"
        output.parent.mkdir(exist_ok=True)
        output.unlink(missing_ok=True)
        arguments = [f"-I{root}", *flags, "-MD", "-MT", "a.o", "-MF", f"{output}.d", "-o", str(output)]
        command = [sys.executable, str(self.program), *arguments, "-c", str(root / "a.cpp")]
        roots = Roots({"project": root, "compiler": self.directory / "compiler"})
        return run_cached(command, identity, CompileCache(self.directory / "cache"), roots), output

    @property
    def compiles(self) -> int:
        log = self.program.parent / "log"
        return len(log.read_text().splitlines()) if log.exists() else 0


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_another_checkout_hits(machine: Machine) -> None:
    first, second = machine.checkout("one"), machine.checkout("two")
    assert machine.compile(first)[0] == 0
    code, output = machine.compile(second)
    assert (code, machine.compiles) == (0, 1)
    assert output.read_text() == "sourceheader"
    # The depfile names this checkout's files: the next build compiles again when one of them changes.
    target, *read = (
        output.with_name("a.o.d").read_text().partition(":")[0],
        *parse_depfile(Path(f"{output}.d").read_text()),
    )
    assert (target, read) == ("a.o", [str(second / "a.cpp"), str(second / "a.hpp")])


@pytest.mark.parametrize("change", ["source", "header", "flag", "identity"])
def test_whatever_counts_misses(machine: Machine, change: str) -> None:
    root = machine.checkout("one")
    machine.compile(root)
    root = machine.checkout("one", **({change: "changed"} if change in ("source", "header") else {}))
    flags = ["-DCHANGED"] if change == "flag" else []
    code, output = machine.compile(root, *flags, identity="clang 23" if change == "identity" else "clang 22")
    assert (code, machine.compiles) == (0, 2)
    assert change == "identity" or "hanged" in output.read_text().lower()
    machine.compile(machine.checkout("one"))
    assert machine.compiles == 2  # as it was before


def test_failure_is_passed_on_and_not_kept(machine: Machine) -> None:
    root = machine.checkout("one", source="error")
    assert machine.compile(root)[0] == 3
    assert machine.compile(root)[0] == 3
    assert machine.compiles == 2


def test_damaged_object_is_compiled_again(machine: Machine) -> None:
    root = machine.checkout("one")
    machine.compile(root)
    for path in (machine.directory / "cache" / "objects").rglob("*.co"):
        path.write_text("damaged")
    code, output = machine.compile(root)
    assert (code, output.read_text(), machine.compiles) == (0, "sourceheader", 2)


@pytest.mark.parametrize(
    "arguments",
    [
        ["a.o", "b.o", "-o", "program"],
        ["-E", "-c", "a.cpp", "-o", "a.i"],
        ["-c", "a.cpp", "-c", "b.cpp", "-o", "a.o", "-MD", "-MT", "a.o", "-MF", "a.d"],
        ["-c", "a.cpp", "-o", "a.o"],
    ],
)
def test_other_commands_just_run(machine: Machine, arguments: list[str]) -> None:
    assert parse_compile(arguments, Roots({})) is None
    code = run_cached(
        [sys.executable, str(machine.program), "--link"], "clang", CompileCache(machine.directory), Roots({})
    )
    assert (code, machine.compiles) == (7, 1)


def test_paths_in_flags_count_relative_to_roots() -> None:
    places = ["-MD", "-MT", "t", "-MF", "d", "-o", "o", "-c", "s"]
    flags = [
        parse_compile(
            [f"-I{root}/include", "-isystem", f"{root}/other", f"-ffile-prefix-map={root}/a=a", "-O2", *places],
            Roots({"project": Path(root)}),
        )
        for root in ("/one", "/two")
    ]
    assert flags[0] == flags[1] is not None
    expected = ("-Iproject/include", "-isystem", "project/other", "-ffile-prefix-map=project/a=a", "-O2", "-MD")
    assert flags[0].flags == expected
