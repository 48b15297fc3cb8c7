"""Which files each package is made from, and whether what is installed was made from the files as they are now.

The scripts among them are found by following imports from what a package's build script runs, so none is forgotten.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
RECORD = ROOT / "build" / "sources.json"

_EVERY_OUTPUT = ("LICENSE", "THIRD_PARTY_NOTICES.md", "recipe/build.sh", "recipe/recipe.yaml")
# Files besides scripts, by the stage of scripts/build.py that an output's build script runs. Outputs are built in this
# order: the tests of each use those before it. The selector has no files.
SOURCES: dict[str, tuple[str, ...]] = {
    "kernels": ("ck/**/*", "csrc/device/*", "src/flash_attn_rocm/archs/*"),
    "selector": (),
    "host": (
        "csrc/*",
        "csrc/device/*.def",
        "csrc/host/*",
        "csrc/torch/*",
        "src/**/*",
        "pyproject.toml",
        "README.md",
        "requirements/windows.txt",
        "scripts/buildlib/windows/*.cmake",
    ),
    "emulator": (
        "emulator/**/*",
        "ck/**/*",
        "csrc/device/*",
        "tests/isa/kernels/**/*",
        "tests/isa/fuzz_*.py",
        "csrc/host/*.def",
        "csrc/host/sha256.*",
        "src/flash_attn_rocm/archs/*",
    ),
    "compat": ("compat/**/*",),
}
# Which CK tree goes into a package is part of its variant; the emulator's README goes into none.
_NO_SOURCES = ("ck/composable_kernel", "emulator/README.md")
# Both import what a stage needs inside of functions: only output_files.py's function of the stage counts.
_ENTRIES = ("scripts/build.py", "scripts/buildlib/output_files.py")


def _imported_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _module_files(name: str) -> Iterator[Path]:
    """Files of this project that importing a module runs: its packages' and its own; none for others' modules."""
    parts = name.split(".")
    for base in (ROOT, ROOT / "src"):
        for length in range(1, len(parts) + 1):
            path = base.joinpath(*parts[:length])
            yield from (file for file in (path / "__init__.py", path.with_name(f"{path.name}.py")) if file.is_file())


@cache
def _imports_of(path: Path) -> frozenset[Path]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(file for name in _imported_names(ast.walk(tree)) for file in _module_files(name))


def _entry_imports(stage: str) -> Iterator[Path]:
    for entry in _ENTRIES:
        tree = ast.parse((ROOT / entry).read_text(encoding="utf-8"))
        nodes: list[ast.AST] = list(tree.body)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name == f"_{stage}":
                nodes += ast.walk(node)
        for name in _imported_names(nodes):
            yield from _module_files(name)


def find_scripts(stage: str) -> set[Path]:
    """Every Python file of this project that a stage's build script runs."""
    found = {ROOT / entry for entry in _ENTRIES}
    waiting = [path for path in _entry_imports(stage) if path not in found]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _imports_of(path)
    return found


def list_sources(stage: str) -> list[Path]:
    """The files that the output of a stage is made from."""
    found = find_scripts(stage) if stage != "selector" else set()
    for pattern in (*_EVERY_OUTPUT, *SOURCES[stage]):
        found.update(path for path in ROOT.glob(pattern) if path.is_file())
    excluded = [ROOT / name for name in _NO_SOURCES]
    return sorted(
        path
        for path in found
        if "__pycache__" not in path.parts and not any(path.is_relative_to(other) for other in excluded)
    )


def hash_sources(stage: str) -> dict[str, str]:
    """sha256 of each of a stage's files, by its path in the project."""
    return {
        path.relative_to(ROOT).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in list_sources(stage)
    }


def digest_sources(stage: str) -> str:
    """One hash over names and contents of a stage's files."""
    return hashlib.sha256(json.dumps(hash_sources(stage), sort_keys=True).encode()).hexdigest()


def hash_all_sources() -> dict[str, dict[str, str]]:
    """`hash_sources` of every stage."""
    return {stage: hash_sources(stage) for stage in SOURCES}


def write_record(sources: Mapping[str, Mapping[str, str]], path: Path = RECORD) -> None:
    """Note which sources the installed packages were made from."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(sources, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def changed_since_build(stages: Iterable[str], path: Path = RECORD) -> list[str]:
    """Files of these stages that differ from those that what is installed was made from, or why that is not known."""
    if not path.exists():
        return [f"all of {', '.join(stages)}: {path.name} is missing"]
    recorded = json.loads(path.read_text(encoding="utf-8"))
    found: set[str] = set()
    for stage in stages:
        then, now = recorded.get(stage, {}), hash_sources(stage)
        found.update(name for name in {*then, *now} if then.get(name) != now.get(name))
    return sorted(found)
