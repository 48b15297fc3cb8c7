"""The golden kernels come from the pinned wheel only, each checked against its own hash, in one download with CK."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from ck.errors import CkSourceError, HashMismatchError, TableError
from ck.golden import fetch_golden, golden_directory, unpack_golden
from ck.source import choose_source
from ck.wheel import GoldenFile, Pin, load_golden_files, load_pin

CODE = b"\x7fELF golden"
DIGEST = hashlib.sha256(CODE).hexdigest()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that pip uses instead of any index."""
    directory = tmp_path / "index"
    directory.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    return directory


def make_wheel(directory: Path, code: bytes = CODE) -> tuple[Path, Pin]:
    """A small wheel with one code object and a CK tree of one file, and a pin that expects CODE in it."""
    wheel = directory / "tiny_ck-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("meta/ck/LICENSE", "MIT\n")
        archive.writestr("meta/hsa/gfx942/fwd/one.co", code)
        archive.writestr("meta/hsa/gfx942/fwd/unlisted.co", code)
        archive.writestr("tiny_ck-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-ck\nVersion: 1.0\n")
        archive.writestr(
            "tiny_ck-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("tiny_ck-1.0.dist-info/RECORD", "")
    pin = Pin(
        name="tiny-ck",
        version="1.0",
        file=wheel.name,
        sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        ck_path="meta/ck",
        unpack=("LICENSE",),
        submodule_path="ck/composable_kernel",
        submodule_commit="0" * 40,
        relies_on=("LICENSE",),
        golden=(GoldenFile("gfx942", "meta/hsa/gfx942/fwd/one.co", DIGEST),),
    )
    return wheel, pin


def test_one_download_serves_ck_and_golden_kernels(tmp_path: Path, index: Path) -> None:
    wheel, pin = make_wheel(index)
    source = choose_source(tmp_path / "cache", {}, pin)
    wheel.unlink()
    directory = fetch_golden(tmp_path / "cache", pin)
    assert [path.relative_to(directory).as_posix() for path in directory.rglob("*.co")] == ["gfx942/one.co"]
    assert (directory / "gfx942/one.co").read_bytes() == CODE
    assert directory.parent == source.root.parent  # beside the CK tree


def test_golden_kernels_are_fetched_where_only_ck_is_cached(tmp_path: Path, index: Path) -> None:
    _, pin = make_wheel(index)
    choose_source(tmp_path / "cache", {}, replace(pin, golden=()))
    assert (fetch_golden(tmp_path / "cache", pin) / "gfx942/one.co").read_bytes() == CODE


def test_tampered_cached_kernel_is_refused_with_both_hashes(tmp_path: Path, index: Path) -> None:
    _, pin = make_wheel(index)
    path = fetch_golden(tmp_path / "cache", pin) / "gfx942/one.co"
    path.write_bytes(CODE.replace(b"golden", b"forged"))
    with pytest.raises(HashMismatchError) as error:
        fetch_golden(tmp_path / "cache", pin)
    assert DIGEST in str(error.value)
    assert hashlib.sha256(path.read_bytes()).hexdigest() in str(error.value)
    assert f"Remove {path.parents[1]} and run `./pixiw run fetch-ck` again." in str(error.value)


def test_missing_cached_kernel_is_refused_by_name(tmp_path: Path, index: Path) -> None:
    _, pin = make_wheel(index)
    directory = fetch_golden(tmp_path / "cache", pin)
    (directory / "gfx942/one.co").unlink()
    with pytest.raises(CkSourceError, match=r"gfx942/one\.co is missing.*fetch-ck"):
        fetch_golden(tmp_path / "cache", pin)


def test_kernel_in_the_wheel_that_is_not_the_listed_one_leaves_nothing(tmp_path: Path) -> None:
    wheel, pin = make_wheel(tmp_path, CODE + b"!")
    with pytest.raises(HashMismatchError, match=r"one\.co"):
        unpack_golden(wheel, pin, tmp_path / "out" / "golden")
    assert list((tmp_path / "out").iterdir()) == []


def test_listed_kernel_that_the_wheel_lacks_is_named(tmp_path: Path) -> None:
    wheel, pin = make_wheel(tmp_path)
    lacking = replace(pin, golden=(GoldenFile("gfx942", "meta/hsa/gfx942/fwd/two.co", DIGEST),))
    with pytest.raises(CkSourceError, match=r"has no meta/hsa/gfx942/fwd/two\.co"):
        unpack_golden(wheel, lacking, tmp_path / "golden")


def test_another_list_is_another_directory(tmp_path: Path) -> None:
    _, pin = make_wheel(tmp_path)
    other = replace(pin, golden=(replace(pin.golden[0], sha256="0" * 64),))
    assert golden_directory(tmp_path, pin) != golden_directory(tmp_path, other)


def test_shipped_table_names_forward_and_backward_kernels_of_both_gpus() -> None:
    names = [file.name for file in load_pin().golden]
    for gfx in ("gfx942", "gfx950"):
        for kind in ("fwd", "bwd"):
            assert any(name.startswith(f"{gfx}/{kind}_hd128_bf16") for name in names)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[gfx942]\npath = "a"\nmirror = "b"\n[gfx942.files]\n', "unknown keys"),
        ('[gfx942]\npath = "a"\n[gfx942.files]\n"one.co" = "12ab"\n', "64 hexadecimal digits"),
        (f'[gfx942]\npath = "a"\n[gfx942.files]\n"x/o.co" = "{DIGEST}"\n"y/o.co" = "{DIGEST}"\n', r"gfx942/o\.co"),
    ],
)
def test_malformed_table_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "golden.toml"
    path.write_text(text)
    with pytest.raises(TableError, match=problem):
        load_golden_files(path)
