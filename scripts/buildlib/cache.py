"""A content-addressed cache of compiled code objects, in two steps like ccache's direct mode.

Step one: a key of everything known before compiling (source text, flags, compiler, bitcode) names a list of entries,
each with the headers that compile read and their hashes. Step two: the first entry whose headers all have the same
content here is the result. Headers are named relative to a root ("ck/ck_tile/core.hpp"), so that another checkout or
prefix hits as well. Nothing is compiled to find out.

As in ccache, one change is not seen: a new header that an include would find earlier in the search path than the one
that was read. Our include directories are csrc/device, CK and the toolchain; names in the first two do not overlap.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FORMAT = 1  # part of every key: raise it when keys or entries change meaning
_MAX_ENTRIES = 8  # header sets kept per key, newest first

# Make's rules for names: backslashes count only before a space or "#", where they come in pairs but for the last.
_WORD = re.compile(r"(?:\\+[ #]|\S)+")
_ESCAPED = re.compile(r"\$\$|(\\*)\1\\([ #])")


def hash_file(path: Path) -> str:
    """sha256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_tree(files: Iterable[Path]) -> str:
    """One sha256 over names and contents, in name order."""
    digest = hashlib.sha256()
    for path in sorted(files, key=lambda path: path.name):
        digest.update(f"{path.name} {hash_file(path)}\n".encode())
    return digest.hexdigest()


def make_key(parts: Mapping[str, object]) -> str:
    """The key of a compile, from everything that is known before it."""
    return hashlib.sha256(json.dumps({"format": FORMAT, **parts}, sort_keys=True).encode()).hexdigest()


class Roots:
    """Names for directories whose place differs between machines; the longest matching one names a path."""

    def __init__(self, roots: Mapping[str, Path]) -> None:
        self._roots = {name: Path(os.path.normpath(path)) for name, path in roots.items()}

    def relative(self, path: str) -> str:
        """`<root name>/<rest>` of a path, or the absolute path when no root holds it."""
        full = Path(os.path.normpath(path))
        holding = [(len(root.parts), name) for name, root in self._roots.items() if full.is_relative_to(root)]
        if not holding:
            return full.as_posix()
        name = max(holding)[1]
        return f"{name}/{full.relative_to(self._roots[name]).as_posix()}"

    def resolve(self, name: str) -> Path:
        """The path on this machine that `relative` gave this name to."""
        first, _, rest = name.partition("/")
        return self._roots[first] / rest if first in self._roots else Path(name)


def parse_depfile(text: str) -> list[str]:
    """The prerequisites of the one rule in a compiler's depfile."""
    body = text.partition(": ")[2].replace("\\\n", " ")
    return [_ESCAPED.sub(_unescape, word) for word in _WORD.findall(body)]


def escape_depfile(path: str) -> str:
    """A path as a depfile names it, for ninja and for `parse_depfile`."""
    return re.sub(r"(\\*)([ #])", r"\1\1\\\2", path).replace("$", "$$")


def _unescape(found: re.Match[str]) -> str:
    if found.group() == "$$":
        return "$"
    return found.group(1) + found.group(2)


@dataclass(frozen=True)
class Hit:
    """A cached code object, the headers it was made from (paths on this machine), and what the compile took."""

    path: Path
    headers: tuple[Path, ...]
    cpu_s: float


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside `path` that becomes `path` only when the block succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


class CompileCache:
    """Entries below one directory; several builds may use it at once, since every file appears whole."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def _entries_path(self, key: str) -> Path:
        return self._directory / "entries" / key[:2] / f"{key}.json"

    def _object_path(self, digest: str) -> Path:
        return self._directory / "objects" / digest[:2] / f"{digest}.co"

    def _load(self, key: str) -> list[dict[str, Any]]:
        try:
            entries: list[dict[str, Any]] = json.loads(self._entries_path(key).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return []
        return entries

    def find(self, key: str, roots: Roots) -> Hit | None:
        """The result of an earlier compile of the same input, or None. A damaged object counts as absent."""
        hashes: dict[Path, str | None] = {}
        for entry in self._load(key):
            headers = {roots.resolve(name): digest for name, digest in entry["headers"].items()}
            if not all(_hash_once(path, hashes) == digest for path, digest in headers.items()):
                continue
            path = self._object_path(entry["object"])
            if path.exists() and hash_file(path) == entry["object"]:
                return Hit(path, tuple(headers), entry["cpu_s"])
        return None

    def store(self, key: str, roots: Roots, headers: Iterable[str], compiled: Path, cpu_s: float) -> None:
        """Remember what a compile read and made."""
        digest = hash_file(compiled)
        target = self._object_path(digest)
        if not target.exists():
            with replacing(target) as temporary:
                shutil.copyfile(compiled, temporary)
        hashed = {roots.relative(header): hash_file(Path(header)) for header in headers}
        entry = {"object": digest, "cpu_s": cpu_s, "headers": hashed}
        older = [known for known in self._load(key) if known["headers"] != hashed]
        with replacing(self._entries_path(key)) as temporary:
            temporary.write_text(json.dumps([entry, *older][:_MAX_ENTRIES]), encoding="utf-8")

    def copy_to(self, other: CompileCache, keys: Iterable[str]) -> None:
        """Put the results of these keys into another cache as well, beside what it holds already."""
        for key in keys:
            mine = self._load(key)
            for entry in mine:
                source, target = self._object_path(entry["object"]), other._object_path(entry["object"])
                if not target.exists() and source.exists():
                    with replacing(target) as temporary:
                        shutil.copyfile(source, temporary)
            merged = [*mine, *(entry for entry in other._load(key) if entry not in mine)]
            if merged:
                with replacing(other._entries_path(key)) as temporary:
                    temporary.write_text(json.dumps(merged[:_MAX_ENTRIES]), encoding="utf-8")

    def keys(self) -> list[str]:
        """Every key that has results, in order."""
        return sorted(path.stem for path in (self._directory / "entries").glob("*/*.json"))


def _hash_once(path: Path, hashes: dict[Path, str | None]) -> str | None:
    if path not in hashes:
        hashes[path] = hash_file(path) if path.is_file() else None
    return hashes[path]
