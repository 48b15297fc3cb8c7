"""The policy of a GPU: the package's table, the user's file over it, and what a malformed file says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flash_attn_rocm import policy
from flash_attn_rocm.archs import load_archs
from flash_attn_rocm.backends import choose
from flash_attn_rocm.errors import KernelsNotInstalledError, PolicyFileError

GOOD = """\
schema = 1

[gfx1201.forward]
backend = "sdpa"
evidence = "measured here"
measured = [{ headdim = 64, ck_ms = 2.0 }]
"""


@pytest.fixture
def user_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for a user's file that this process has not read."""
    path = tmp_path / "policy.toml"
    monkeypatch.setenv("FLASH_ATTN_ROCM_POLICY", str(path))
    policy.user_rules.cache_clear()
    return path


@pytest.fixture(autouse=True)
def _forget() -> object:
    yield
    policy.user_rules.cache_clear()


def chosen(**changes: object) -> tuple[str, str]:
    """Backend and reason for tensors on a gfx1201 with kernels."""
    facts = {"device_type": "cuda", "hip": True, "gfx": "gfx1201", "emulated": (), "override": None}
    choice = choose(**(facts | {"installed": ["gfx1201"], "rules": policy.rule_for} | changes))
    return choice.backend, choice.reason


def test_without_a_file_the_table_decides(user_file: Path) -> None:
    for gfx, arch in load_archs().items():
        rules = [policy.rule_for(gfx, direction) for direction in policy.DIRECTIONS]
        assert [rule.backend for rule in rules] == [arch.forward_backend, arch.backward_backend]
        assert {rule.source for rule in rules} == {"policy"}


def test_the_file_overrides_one_direction_of_one_gpu(user_file: Path) -> None:
    user_file.write_text(GOOD, encoding="utf-8")
    assert chosen() == ("sdpa", f"user file {user_file} for gfx1201: forward = sdpa (measured here)")
    assert policy.rule_for("gfx1201", "backward") == policy.table_rule("gfx1201", "backward")
    assert policy.rule_for("gfx1200", "forward") == policy.table_rule("gfx1200", "forward")


def test_the_environment_overrides_the_file(user_file: Path) -> None:
    user_file.write_text(GOOD, encoding="utf-8")
    assert chosen(override="ck") == ("ck", "FLASH_ATTN_ROCM_BACKEND=ck")
    user_file.write_text("broken", encoding="utf-8")
    policy.user_rules.cache_clear()
    assert chosen(override="sdpa")[0] == "sdpa"  # not even read


def test_the_file_is_read_once(user_file: Path) -> None:
    user_file.write_text(GOOD, encoding="utf-8")
    assert chosen()[0] == "sdpa"
    user_file.unlink()
    assert chosen()[0] == "sdpa"


def test_a_file_may_ask_for_kernels_that_are_not_installed(user_file: Path) -> None:
    gfx = next(gfx for gfx in load_archs() if gfx != "gfx1201")
    user_file.write_text(GOOD.replace("gfx1201", gfx).replace("sdpa", "ck"), encoding="utf-8")
    with pytest.raises(KernelsNotInstalledError, match=f"No kernels for GPU '{gfx}' are installed"):
        chosen(gfx=gfx)


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("schema = 1\n[gfx1201.forward\n", 2, "not valid TOML: Expected ']' at the end of a table declaration"),
        (GOOD.replace("schema = 1", "schema = 2"), 1, "schema is 2; expected 1"),
        (GOOD.replace("schema = 1", ""), None, "schema is None; expected 1"),
        (GOOD.replace("gfx1201", "gfx9999"), 3, "GPU 'gfx9999' is not known; allowed: gfx1100, "),
        (GOOD.replace("forward", "sideways"), 3, "gfx1201.sideways is not known; allowed: forward, backward"),
        (GOOD.replace('"sdpa"', '"cuda"'), 4, "gfx1201.forward.backend is 'cuda'; allowed: ck, sdpa"),
        (GOOD.replace('"sdpa"', "3"), 4, "gfx1201.forward.backend is 3; expected str"),
        (GOOD.replace("evidence", "reason"), 5, "gfx1201.forward.reason is not known; allowed: backend, evidence"),
        (GOOD.replace('evidence = "measured here"\n', ""), 3, "[gfx1201.forward] lacks evidence"),
        ('schema = 1\ngfx1201 = "ck"\n', 2, "gfx1201 is 'ck'; expected a table [gfx1201]"),
    ],
)
def test_a_malformed_file_names_the_line(user_file: Path, text: str, line: int | None, problem: str) -> None:
    user_file.write_text(text, encoding="utf-8")
    with pytest.raises(PolicyFileError) as raised:
        chosen()
    assert raised.value.line == line
    place = f"{user_file}, line {line}" if line else str(user_file)
    assert str(raised.value).startswith(f"policy file {place}: {problem}")
    assert "Mend that, or delete the file" in raised.value.fix
    assert "flash-attn-rocm tune" in raised.value.fix


def test_a_file_that_cannot_be_read_is_an_error(user_file: Path) -> None:
    user_file.mkdir()
    with pytest.raises(PolicyFileError, match="cannot be read"):
        chosen()
    user_file.rmdir()
    user_file.write_bytes(b"\xff\xfe")
    with pytest.raises(PolicyFileError, match="not UTF-8"):
        chosen()


@pytest.mark.skipif(sys.platform == "win32", reason="the directories of other systems")
def test_the_place_of_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("FLASH_ATTN_ROCM_POLICY", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert policy.user_file() == tmp_path / "flash-attn-rocm" / "policy.toml"
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert policy.user_file() == tmp_path / ".config" / "flash-attn-rocm" / "policy.toml"


def test_the_place_of_the_file_on_windows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("FLASH_ATTN_ROCM_POLICY", raising=False)
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("APPDATA", str(tmp_path))
    assert policy.user_file() == tmp_path / "flash-attn-rocm" / "policy.toml"
