"""The fallback to Debian's archive: which mirror, which compiler, and what happens without root or network."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from scripts.buildlib.errors import CommandError
from scripts.buildlib.toolchains import debian_files, registry
from scripts.buildlib.toolchains.debian_files import (
    DebianFilesError,
    choose_site,
    fetch_files,
    private_options,
    unpacked_tree,
)
from tests.unit.fake_toolchain import make_clang, make_rocm, write_script

GFX = ("gfx1201",)
TARGETS = """http://x.test/third|Vendor|Debian|main|Packages
http://x.test/debian-security|Debian|Debian-Security|main|Packages
http://x.test/debian|Debian|Debian|contrib|Packages
http://x.test/debian|Debian|Debian|main|Translations
http://mirror.test/debian|Debian|Debian|main|Packages
http://other.test/debian|Debian|Debian|main|Packages
"""


def test_site_is_the_main_debian_archive_not_security_nor_third_parties() -> None:
    assert choose_site(TARGETS) == "http://mirror.test/debian"
    assert choose_site("http://x.test/ubuntu|Ubuntu|Ubuntu|main|Packages\n") is None
    assert choose_site("") is None


def test_private_configuration_touches_nothing_of_the_machine(tmp_path: Path) -> None:
    options = private_options(tmp_path)
    values = dict(option.split("=", 1) for option in options[1::2])
    assert values["Dir::Etc::sourceparts"] == "/dev/null"
    for key in ("Dir::Etc::sourcelist", "Dir::State::lists", "Dir::Cache"):
        assert values[key].startswith(str(tmp_path))


def test_no_host_name_is_written_into_the_code() -> None:
    for module in (registry, debian_files):
        assert "http" not in Path(module.__file__ or "").read_text()


def test_newest_clang_whose_lld_is_installed_comes_first(tmp_path: Path) -> None:
    for name in ("clang++-19", "clang++-21", "clang++-22", "clang++-23", "ld.lld-19", "ld.lld-21", "ld.lld-22"):
        write_script(tmp_path / name, "#!/bin/sh\n")
    assert [path.name for path in registry.find_clang(str(tmp_path))] == ["clang++-22", "clang++-21"]
    assert registry.find_clang("") == []


def apt_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str = "exit 1") -> str:
    """A PATH with a make-believe apt-get, and no clang."""
    for name in ("apt-get", "apt-cache", "dpkg-deb"):
        write_script(tmp_path / "bin" / name, f'#!/bin/sh\necho {name} "$@" >> {tmp_path}/log\n{body}\n')
    path = f"{tmp_path / 'bin'}:/bin"
    monkeypatch.setenv("PATH", path)
    monkeypatch.setattr(registry, "find_clang", lambda _: [])
    return path


def test_without_root_the_exact_command_is_printed_and_nothing_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = apt_path(tmp_path, monkeypatch)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (candidate,) = registry.find_candidates({"PATH": path}, GFX, tmp_path / "cache", may_install=True)
    assert candidate.fix == (
        "sudo apt-get update && sudo apt-get install --yes --no-install-recommends clang-22 lld-22 llvm-22"
    )
    assert "needs root" in candidate.reason
    assert not (tmp_path / "log").exists()


def test_as_root_the_newest_offered_release_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = 'case "$*" in *clang-22*) echo "  Candidate: (none)";; *) echo "  Candidate: 1:21.1";; esac'
    path = apt_path(tmp_path, monkeypatch, body)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(registry, "fetch_files", lambda cache: make_rocm(cache))
    list(registry.find_candidates({"PATH": path}, GFX, tmp_path / "cache", may_install=True))
    log = (tmp_path / "log").read_text().splitlines()
    assert log[0] == "apt-get update"
    assert log[-1] == "apt-get install --yes --no-install-recommends clang-21 lld-21 llvm-21"


def test_release_without_the_compiler_says_what_to_add(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = apt_path(tmp_path, monkeypatch, "exit 0")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (candidate,) = registry.find_candidates({"PATH": path}, GFX, tmp_path / "cache", may_install=True)
    assert "offer none of clang-22, clang-21" in candidate.reason
    assert "security suite" in candidate.fix


def test_other_systems_are_rejected(tmp_path: Path) -> None:
    (candidate,) = registry.find_candidates({"PATH": str(tmp_path)}, GFX, tmp_path, may_install=True)
    assert "not a Debian system" in candidate.reason


def test_nothing_is_downloaded_when_an_earlier_place_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = apt_path(tmp_path, monkeypatch)
    (candidate,) = registry.find_candidates({"PATH": path}, GFX, tmp_path / "cache", may_install=False)
    assert candidate.reason.startswith("not tried")
    assert not (tmp_path / "log").exists()


def test_network_failure_is_a_reason_not_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = apt_path(tmp_path, monkeypatch)
    monkeypatch.setattr(registry, "find_clang", lambda _: [make_clang(tmp_path / "clang")])
    (candidate,) = registry.find_candidates({"PATH": path}, GFX, tmp_path / "cache", may_install=True)
    assert candidate.toolchain is None
    assert "apt-get failed" in candidate.reason
    assert "network" in candidate.fix


def test_old_mirror_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = apt_path(tmp_path, monkeypatch, 'echo "E: Release file is expired (invalid since 23d)" >&2; exit 100')
    monkeypatch.setattr(registry, "find_clang", lambda _: [make_clang(tmp_path / "clang")])
    (candidate,) = registry.find_candidates({"PATH": path}, GFX, tmp_path / "cache", may_install=True)
    assert "Check-Valid-Until" in candidate.fix


def test_unpacked_files_are_used_again_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = apt_path(tmp_path, monkeypatch)
    versions = {"libamdhip64-dev": "6.4.3-5"}
    tree = unpacked_tree(tmp_path / "cache")
    usr = make_rocm(tree / "usr")
    (usr / "amdgcn").rename(usr / "lib.tmp")
    bitcode = usr / "lib" / "llvm-21" / "lib" / "clang" / "21" / "amdgcn"
    bitcode.parent.mkdir(parents=True)
    (usr / "lib.tmp").rename(bitcode)
    (tree / "versions.json").write_text(json.dumps(versions))
    monkeypatch.setattr(registry, "find_clang", lambda _: [make_clang(tmp_path / "clang")])
    (candidate,) = registry.find_candidates({"PATH": path}, GFX, tmp_path / "cache", may_install=False)
    assert candidate.toolchain is not None
    assert candidate.toolchain.device_lib_path == bitcode / "bitcode"
    assert candidate.versions["libamdhip64-dev"] == "6.4.3-5"
    assert not (tmp_path / "log").exists()


def test_failed_download_leaves_nothing_that_looks_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keyring = tmp_path / "keyring.gpg"
    keyring.touch()
    monkeypatch.setattr(debian_files, "KEYRING", keyring)
    apt_path(
        tmp_path,
        monkeypatch,
        f'case "$*" in *indextargets*) cat {tmp_path}/targets;; *"download lib"*) exit 100;; esac',
    )
    (tmp_path / "targets").write_text(TARGETS)
    with pytest.raises(CommandError, match="apt-get download failed"):
        fetch_files(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
    source = [line for line in (tmp_path / "log").read_text().splitlines() if " download " in line]
    assert "libamdhip64-dev rocm-device-libs-21" in source[0]


def test_other_packages_are_another_tree(tmp_path: Path) -> None:
    trees = {unpacked_tree(tmp_path, packages) for packages in (("a", "b"), ("a",), ("a", "c"))}
    assert len(trees) == 3
    assert unpacked_tree(tmp_path) == unpacked_tree(tmp_path, debian_files.PACKAGES)


def test_missing_keyring_stops_before_any_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apt_path(tmp_path, monkeypatch)
    monkeypatch.setattr(debian_files, "KEYRING", tmp_path / "none.gpg")
    with pytest.raises(DebianFilesError, match="debian-archive-keyring"):
        fetch_files(tmp_path / "cache")
    assert not (tmp_path / "log").exists()
