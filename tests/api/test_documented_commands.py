"""Shell examples of the documentation run, on the emulated GPU and with small shapes where they measure."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from flash_attn_rocm import policy
from flash_attn_rocm.cli import main
from tests.api.locked_packages import locked_packages
from tests.documents import TEXT

COMMANDS = [
    line.partition("#")[0].strip()
    for block in re.findall(r"```sh\n(.*?)```", TEXT, re.S)
    for line in block.splitlines()
    if line.startswith("flash-attn-rocm ")
]
# Shapes that the emulated GPU computes in a moment, in place of the defaults.
SMALL = ["--emulate", "gfx1201", "--warmup", "0", "--measure", "0"]
SIZES = {"--seqlens": "64", "--heads": "2", "--headdim": "64"}


def small(command: str) -> list[str]:
    """The command's arguments, made to run without a GPU."""
    _, *arguments = shlex.split(command)
    if arguments[0] not in ("bench", "tune") or "--compare" in arguments:
        return arguments
    for option, value in SIZES.items():
        if option in arguments:
            place = arguments.index(option) + 1
            end = next((n for n in range(place, len(arguments)) if arguments[n].startswith("--")), len(arguments))
            arguments[place:end] = [value]
        else:
            arguments += [option, value]
    return arguments + SMALL


def test_the_documentation_shows_each_command() -> None:
    assert {command.split()[1] for command in COMMANDS} >= {"info", "bench", "tune"}


def test_commands_of_the_documentation(
    kernel_device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In their order and in one directory: some read what others wrote."""
    if kernel_device != "cpu":
        pytest.skip("a real GPU is in use")
    monkeypatch.delenv("FLASH_ATTN_ROCM_BACKEND")
    monkeypatch.setenv("FLASH_ATTN_ROCM_POLICY", str(tmp_path / "policy.toml"))
    monkeypatch.chdir(tmp_path)
    if importlib.util.find_spec("matplotlib") is None:
        monkeypatch.setattr(sys, "path", [*sys.path, str(locked_packages("bench"))])
    policy.user_rules.cache_clear()
    for command in COMMANDS:
        if "theirs.json" in command:
            shutil.copy("mine.json", "theirs.json")
        assert main(small(command)) == 0, f"{command}: {capsys.readouterr()}"
    policy.user_rules.cache_clear()
