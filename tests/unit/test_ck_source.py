"""Which CK tree is built, and that a download which is not the pinned file is refused."""

from __future__ import annotations

import hashlib
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from ck.errors import CkSourceError, HashMismatchError, RequestError, TableError
from ck.source import choose_source, hash_tree, unpack_wheel
from ck.wheel import PIN_TOML, Pin, check_wheel, download_wheel, load_pin

ROOT = Path(__file__).parents[2]
CORE = "include/ck_tile/core.hpp"


def make_wheel(directory: Path) -> tuple[Path, Pin]:
    """A small wheel that pip accepts, with a CK tree, and the pin that fits it."""
    wheel = directory / "tiny_ck-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"meta/ck/{CORE}", "// core\n")
        archive.writestr("meta/ck/LICENSE", "MIT\n")
        archive.writestr("meta/ck/library/big.cpp", "// not needed\n")
        archive.writestr("tiny_ck-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-ck\nVersion: 1.0\n")
        archive.writestr(
            "tiny_ck-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("tiny_ck-1.0.dist-info/RECORD", "")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    pin = Pin(
        name="tiny-ck",
        version="1.0",
        file=wheel.name,
        sha256=digest,
        ck_path="meta/ck",
        unpack=("include/ck_tile/", "LICENSE"),
        submodule_path="ck/composable_kernel",
        submodule_commit="0" * 40,
        relies_on=(CORE,),
    )
    return wheel, pin


@pytest.fixture
def offline_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that pip uses instead of any index."""
    index = tmp_path / "index"
    index.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    return index


def test_pin_names_the_commit_that_the_gitlink_holds() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--stage", "ck/composable_kernel"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    if not listed:
        pytest.skip("not a git checkout")
    assert listed[:2] == ["160000", load_pin().submodule_commit]


def test_gitmodules_places_the_submodule_where_the_pin_says() -> None:
    text = (ROOT / ".gitmodules").read_text()
    assert f"path = {load_pin().submodule_path}\n" in text
    assert "url = https://github.com/ROCm/composable_kernel.git\n" in text


def test_only_what_is_used_is_unpacked(tmp_path: Path) -> None:
    wheel, pin = make_wheel(tmp_path)
    unpack_wheel(wheel, pin, tmp_path / "tree")
    files = {
        path.relative_to(tmp_path / "tree").as_posix() for path in (tmp_path / "tree").rglob("*") if path.is_file()
    }
    assert files == {CORE, "LICENSE"}


@pytest.mark.parametrize("damage", ["tampered", "truncated"])
def test_damaged_wheel_is_refused_with_both_hashes_and_nothing_unpacked(tmp_path: Path, damage: str) -> None:
    wheel, pin = make_wheel(tmp_path)
    data = wheel.read_bytes()
    wheel.write_bytes(data[:-10] if damage == "truncated" else data.replace(b"// core", b"// evil"))
    got = hashlib.sha256(wheel.read_bytes()).hexdigest()
    with pytest.raises(HashMismatchError) as error:
        unpack_wheel(wheel, pin, tmp_path / "out" / "tree")
    assert pin.sha256 in str(error.value)
    assert got in str(error.value)
    assert not (tmp_path / "out").exists()


def test_pip_fetches_the_pinned_file_once(tmp_path: Path, offline_index: Path) -> None:
    wheel, pin = make_wheel(offline_index)
    source = choose_source(tmp_path / "cache", {}, pin)
    assert (source.root / CORE).read_text() == "// core\n"
    assert (source.label, source.why, source.pinned) == ("tiny-ck 1.0", "the pinned wheel", True)
    wheel.unlink()
    assert choose_source(tmp_path / "cache", {}, pin) == source


def test_pip_refuses_a_tampered_file_with_both_hashes(tmp_path: Path, offline_index: Path) -> None:
    wheel, pin = make_wheel(offline_index)
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("meta/ck/evil.hpp", "")
    got = hashlib.sha256(wheel.read_bytes()).hexdigest()
    with pytest.raises(CkSourceError) as error:
        download_wheel(pin, tmp_path)
    assert pin.sha256 in str(error.value)
    assert got in str(error.value)


def test_ck_root_wins_and_no_path_gets_into_its_label(tmp_path: Path) -> None:
    _, pin = make_wheel(tmp_path)
    (tmp_path / "mine" / CORE).parent.mkdir(parents=True)
    (tmp_path / "mine" / CORE).write_text("")
    source = choose_source(tmp_path / "cache", {"CK_ROOT": str(tmp_path / "mine"), "CK_SOURCE": "submodule"}, pin)
    assert source.root == tmp_path / "mine"
    assert not source.pinned
    assert str(tmp_path) not in source.label
    (tmp_path / "mine" / CORE).write_text("// changed")
    changed = choose_source(tmp_path / "cache", {"CK_ROOT": str(tmp_path / "mine")}, pin)
    assert changed.label != source.label


def test_tree_hash_is_of_the_files_that_are_used_wherever_they_are(tmp_path: Path) -> None:
    _, pin = make_wheel(tmp_path)
    for name in ("one", "two"):
        (tmp_path / name / CORE).parent.mkdir(parents=True)
        (tmp_path / name / CORE).write_text("// core\n")
    first = hash_tree(tmp_path / "one", pin)
    (tmp_path / "two" / "README").write_text("not used")
    assert hash_tree(tmp_path / "two", pin) == first
    (tmp_path / "two" / CORE).rename(tmp_path / "two" / CORE.replace("core", "base"))
    assert hash_tree(tmp_path / "two", pin) != first


def test_empty_variables_count_as_unset(tmp_path: Path, offline_index: Path) -> None:
    _, pin = make_wheel(offline_index)
    assert choose_source(tmp_path / "cache", {"CK_SOURCE": "", "CK_ROOT": ""}, pin).pinned


def test_ck_root_without_a_file_we_rely_on_is_rejected(tmp_path: Path) -> None:
    _, pin = make_wheel(tmp_path)
    with pytest.raises(CkSourceError, match=r"lacks include/ck_tile/core\.hpp"):
        choose_source(tmp_path / "cache", {"CK_ROOT": str(tmp_path)}, pin)


def test_submodule_is_used_only_when_asked_for_and_checked_out(tmp_path: Path) -> None:
    _, pin = make_wheel(tmp_path)
    with pytest.raises(CkSourceError, match="git submodule update --init"):
        choose_source(tmp_path / "cache", {"CK_SOURCE": "submodule"}, pin, repository=tmp_path)
    with pytest.raises(RequestError, match=r"'tarball'.*wheel, submodule"):
        choose_source(tmp_path / "cache", {"CK_SOURCE": "tarball"}, pin)


def test_shipped_pin_is_complete() -> None:
    pin = load_pin()
    assert pin.file.startswith("amd_aiter-0.1.7.post2.dev18")
    assert len(pin.sha256) == 64
    assert "include/ck_tile/core.hpp" in pin.relies_on


def test_pin_with_unknown_key_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "pin.toml"
    path.write_text(PIN_TOML.read_text() + '\nmirror = "x"\n')
    with pytest.raises(TableError, match=r"unknown keys .'mirror'"):
        load_pin(path)


def test_check_wheel_accepts_the_pinned_file(tmp_path: Path) -> None:
    wheel, pin = make_wheel(tmp_path)
    check_wheel(wheel, pin)
    with pytest.raises(HashMismatchError):
        check_wheel(wheel, replace(pin, sha256="0" * 64))
