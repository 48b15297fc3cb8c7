"""kernels.json as Python reads it: every kind of damage is one error with the command that repairs it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from flash_attn_rocm.cli import main
from flash_attn_rocm.errors import KernelManifestError
from flash_attn_rocm.kernel_manifest import read_manifest
from tests.api.fake_runtime import kernel, manifest


def without(table: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in table.items() if name != key}


DAMAGES = [
    (b"", "not valid JSON"),
    (b'{"schema": 1,', "not valid JSON"),
    (b"\xff\xfe", "not valid JSON"),
    (b"[]", "top level is list; expected an object"),
    (without(manifest(), "schema"), "field 'schema' is missing"),
    (manifest(schema=2), "schema is 2; expected 1"),
    (manifest(schema="1"), "field 'schema' is '1'; expected int"),
    (without(manifest(), "profile"), "field 'profile' is missing"),
    (manifest(kernels={}), "field 'kernels' is"),
    (manifest(gfx="gfx942"), "holds kernels for gfx942; expected gfx1201"),
    (manifest([without(kernel("x"), "tile_m")]), "kernels[0]: field 'tile_m' is missing"),
    (manifest([without(kernel("x"), "deterministic")]), "kernels[0]: field 'deterministic' is missing"),
    (manifest([kernel("x", hdim_q=True)]), "kernels[0]: field 'hdim_q' is True; expected int"),
    (manifest(["x"]), "kernels[0] is str; expected an object"),  # type: ignore[list-item]
]


def write(root: Path, content: Any) -> Path:
    path = root / "gfx1201" / "kernels.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def test_a_good_file_is_read(tmp_path: Path) -> None:
    assert read_manifest(write(tmp_path, manifest())) == manifest()


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(KernelManifestError, match=r"kernels\.json: cannot be read: No such file"):
        read_manifest(tmp_path / "gfx1201" / "kernels.json")


@pytest.mark.parametrize(("content", "message"), DAMAGES, ids=[message for _, message in DAMAGES])
def test_damage_is_an_error_and_a_problem_in_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], content: Any, message: str
) -> None:
    path = write(tmp_path, content)
    with pytest.raises(KernelManifestError) as raised:
        read_manifest(path)
    assert message in str(raised.value)
    remedy = "conda install --force-reinstall flash-attn-rocm-kernels-gfx1201"
    assert str(raised.value).startswith(f"{path}: ")
    assert remedy in str(raised.value)

    monkeypatch.setenv("FLASH_ATTN_ROCM_KERNELS", str(tmp_path))
    monkeypatch.setenv("FLASH_ATTN_ROCM_BACKEND", "ck")
    monkeypatch.setenv("FLASH_ATTN_ROCM_EMULATE", "gfx1201")
    monkeypatch.setenv("FLASH_ATTN_ROCM_HIP_LIBRARY", "/nowhere/libamdhip64.so")
    monkeypatch.setenv("FLASH_ATTN_ROCM_LIBRARY", "/nowhere/libflash_attn_rocm.so")
    assert main(["verify"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert remedy in error
    assert main(["info"]) == 1
    assert f"error: {path}: " in capsys.readouterr().out


@pytest.mark.parametrize("what", ["directory", "pipe"])
def test_only_a_regular_file_is_read(tmp_path: Path, what: str) -> None:
    path = tmp_path / "gfx1201" / "kernels.json"
    path.parent.mkdir()
    if what == "directory":
        path.mkdir()
    else:
        os.mkfifo(path)
    with pytest.raises(KernelManifestError, match=r"not a regular file.*conda install --force-reinstall"):
        read_manifest(path)
