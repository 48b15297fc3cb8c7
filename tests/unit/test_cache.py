"""The compile cache: hits across checkouts and prefixes, misses when anything that matters changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.buildlib.cache import CompileCache, Roots, escape_depfile, hash_tree, make_key, parse_depfile, replacing


def make_checkout(root: Path, header: str = "int x;") -> tuple[Roots, list[str]]:
    """A checkout with one header of ours, one of CK's; as a compiler names them."""
    for path in (root / "csrc" / "a.hpp", root / "ck" / "include" / "b.hpp"):
        path.parent.mkdir(parents=True)
        path.write_text(header)
    roots = Roots({"device": root / "csrc", "ck": root / "ck" / "include"})
    return roots, [f"{root}/csrc/a.hpp", f"{root}/csrc/../ck/include/b.hpp"]


@pytest.fixture
def compiled(tmp_path: Path) -> Path:
    path = tmp_path / "out.co"
    path.write_bytes(b"machine code")
    return path


def test_other_checkout_with_the_same_content_hits(tmp_path: Path, compiled: Path) -> None:
    cache = CompileCache(tmp_path / "cache")
    roots, headers = make_checkout(tmp_path / "one")
    cache.store("key", roots, headers, compiled, cpu_s=35.5)
    other, _ = make_checkout(tmp_path / "two")
    hit = cache.find("key", other)
    assert hit is not None
    assert (hit.path.read_bytes(), hit.cpu_s) == (b"machine code", 35.5)
    assert set(hit.headers) == {tmp_path / "two" / "csrc" / "a.hpp", tmp_path / "two" / "ck" / "include" / "b.hpp"}


def test_changed_or_missing_header_misses_and_changing_it_back_hits(tmp_path: Path, compiled: Path) -> None:
    cache = CompileCache(tmp_path / "cache")
    roots, headers = make_checkout(tmp_path / "one")
    cache.store("key", roots, headers, compiled, 1.0)
    header = Path(headers[0])
    header.write_text("int y;")
    assert cache.find("key", roots) is None
    compiled.write_bytes(b"other code")
    cache.store("key", roots, headers, compiled, 1.0)
    header.write_text("int x;")
    hit = cache.find("key", roots)
    assert hit is not None
    assert hit.path.read_bytes() == b"machine code"
    header.unlink()
    assert cache.find("key", roots) is None


def test_unknown_key_and_damaged_entries_miss(tmp_path: Path, compiled: Path) -> None:
    cache = CompileCache(tmp_path / "cache")
    roots, headers = make_checkout(tmp_path / "one")
    assert cache.find("key", roots) is None
    cache.store("key", roots, headers, compiled, 1.0)
    (entries,) = (tmp_path / "cache" / "entries").rglob("*.json")
    (stored,) = (tmp_path / "cache" / "objects").rglob("*.co")
    stored.write_bytes(b"machine kode")
    assert cache.find("key", roots) is None
    entries.write_text("{ not json")
    assert cache.find("key", roots) is None


def test_entries_name_no_path_of_the_checkout(tmp_path: Path, compiled: Path) -> None:
    cache = CompileCache(tmp_path / "cache")
    roots, headers = make_checkout(tmp_path / "one")
    cache.store("key", roots, headers, compiled, 1.0)
    (entries,) = (tmp_path / "cache" / "entries").rglob("*.json")
    text = entries.read_text()
    assert '"device/a.hpp"' in text
    assert '"ck/b.hpp"' in text
    assert str(tmp_path) not in text


def test_only_the_newest_header_sets_are_kept(tmp_path: Path, compiled: Path) -> None:
    cache = CompileCache(tmp_path / "cache")
    roots, headers = make_checkout(tmp_path / "one")
    for number in range(12):
        Path(headers[0]).write_text(f"int x{number};")
        cache.store("key", roots, headers, compiled, 1.0)
    assert cache.find("key", roots) is not None
    Path(headers[0]).write_text("int x0;")
    assert cache.find("key", roots) is None


def test_key_changes_with_every_part() -> None:
    base = {"source": "s", "flags": ["-O3"], "identity": {"clang": "22", "bitcode": "b"}}
    others = [
        {**base, "source": "t"},
        {**base, "flags": ["-O2"]},
        {**base, "identity": {"clang": "21", "bitcode": "b"}},
        {**base, "identity": {"clang": "22", "bitcode": "c"}},
    ]
    keys = {make_key(parts) for parts in (base, *others)}
    assert len(keys) == 5
    assert make_key(dict(reversed(base.items()))) == make_key(base)


def test_longest_root_names_a_path_and_others_stay_absolute() -> None:
    roots = Roots({"prefix": Path("/p"), "clang": Path("/p/lib/clang/22")})
    assert roots.relative("/p/bin/../lib/clang/22/include/x.h") == "clang/include/x.h"
    assert roots.relative("/p/include/y.h") == "prefix/include/y.h"
    assert roots.relative("/usr/include/z.h") == "/usr/include/z.h"
    for path in ("/p/lib/clang/22/include/x.h", "/p/include/y.h", "/usr/include/z.h"):
        assert roots.resolve(roots.relative(path)) == Path(path)


def test_tree_hash_sees_names_and_contents_but_not_the_place(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ockl.bc").write_bytes(b"bitcode")
    first = hash_tree((tmp_path / "one").iterdir())
    assert hash_tree((tmp_path / "two").iterdir()) == first
    (tmp_path / "two" / "ocml.bc").write_bytes(b"")
    assert hash_tree((tmp_path / "two").iterdir()) != first


def test_depfile_with_continuation_lines_spaces_and_dollars() -> None:
    assert parse_depfile("out: /a/x.hip \\\n  /b/my\\ dir/y.hpp \\\n  /c/$$z.hpp\n") == [
        "/a/x.hip",
        "/b/my dir/y.hpp",
        "/c/$z.hpp",
    ]


# As clang 22 writes them: "a b" is a\\ b, "a#b" is a\\#b, "a$b" is a$$b, "a\\ b" is a\\\\\\ b; other backslashes stay.
@pytest.mark.parametrize(
    ("path", "escaped"),
    [
        ("/a b", "/a\\ b"),
        ("/a#b", "/a\\#b"),
        ("/a$b", "/a$$b"),
        ("/a\\ b", "/a\\\\\\ b"),
        ("/a\\b", "/a\\b"),
        ("/$#", "/$$\\#"),
    ],
)
def test_depfile_names_with_special_characters(path: str, escaped: str) -> None:
    assert escape_depfile(path) == escaped
    assert parse_depfile(f"out: /x.hip {escaped} \\\n  /y.hpp\n") == ["/x.hip", path, "/y.hpp"]


def test_interrupted_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), replacing(path) as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
