"""kernels.json: its schema, its checks, and that the same input gives the same bytes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from ck.code_object import read_arg_names
from ck.errors import CodeObjectError
from ck.manifest import format_manifest, make_manifest, write_manifest
from ck.plan import KernelSpec, Unit
from ck.tiling import Tile
from ck.variants import Variant
from flash_attn_rocm.archs import load_arch
from tests.unit.fake_code_object import FakeKernel, make_code_object

GFX1201 = load_arch("gfx1201")
D64 = Tile((64, 64, 32, 64, 32, 64), (4, 1, 1), (16, 16, 16))
SPEC = KernelSpec("gfx1201", Variant("fmha_fwd", 64, "bf16", "batch", True, "none", False, False, "seqlen"), D64)
UNIT = Unit("unit", "gfx1201", (SPEC,))
KERNEL = FakeKernel(SPEC.name)


def write_object(tmp_path: Path, *kernels: FakeKernel) -> Path:
    path = tmp_path / UNIT.object_name
    path.write_bytes(make_code_object(kernels, read_arg_names()))
    return path


def make(tmp_path: Path) -> dict[str, object]:
    return make_manifest(tmp_path, GFX1201, "smoke", [UNIT], "clang version 22.1.8", "amd-aiter 1")


def test_row_has_the_fields_the_host_library_reads(tmp_path: Path) -> None:
    path = write_object(tmp_path, KERNEL)
    manifest = make(tmp_path)
    assert manifest["kernels"] == [
        {
            "name": "fmha_fwd_gfx1201_bf16_d64_batch_mask_pseqlen",
            "op": "fmha_fwd",
            "code_object": 0,
            "dtype": "bf16",
            "hdim_q": 64,
            "hdim_v": 64,
            "mode": "batch",
            "mask": True,
            "bias": "none",
            "softcap": False,
            "dropout": False,
            "padding": "seqlen",
            "page": 0,
            "deterministic": False,
            "tile_m": 64,
            "tile_n": 64,
            "block_threads": 128,
            "kargs_bytes": 160,
            "args": {"q_ptr": [0, 8], "seqlen_q": [32, 4]},
            "lds_bytes": 6656,
            "vgprs": 146,
            "sgprs": 96,
            "vgpr_spills": 0,
            "sgpr_spills": 0,
            "scratch_bytes": 64,
            "kernarg_bytes": 416,
        }
    ]
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert manifest["code_objects"] == [{"file": "unit.co", "sha256": digest, "bytes": path.stat().st_size}]
    top = {key: manifest[key] for key in ("schema", "gfx", "wave_size", "profile", "compiler", "ck")}
    assert top == {
        "schema": 1,
        "gfx": "gfx1201",
        "wave_size": 32,
        "profile": "smoke",
        "compiler": "clang version 22.1.8",
        "ck": "amd-aiter 1",
    }


def test_text_is_json_and_the_same_for_the_same_code_objects(tmp_path: Path) -> None:
    write_object(tmp_path, KERNEL)
    text = format_manifest(make(tmp_path))
    assert json.loads(text) == make(tmp_path)
    assert format_manifest(make(tmp_path)) == text
    assert str(tmp_path) not in text


def test_unchanged_manifest_is_not_written_again(tmp_path: Path) -> None:
    write_object(tmp_path, KERNEL)
    path = write_manifest(tmp_path, make(tmp_path))
    before = path.stat().st_mtime_ns
    assert write_manifest(tmp_path, make(tmp_path)).stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (
            replace(KERNEL, tile=(64, 32, 64, 64)),
            r"are \(64, 32, 64, 64, 32, 128\); planned were \(64, 64, 64, 64, 32, 128\)",
        ),
        (replace(KERNEL, block_threads=256), "planned were"),
        (replace(KERNEL, name="another"), r"holds \['another'\]; planned were \['fmha_fwd_gfx1201"),
    ],
)
def test_code_object_that_is_not_what_was_planned_is_rejected(tmp_path: Path, kernel: FakeKernel, message: str) -> None:
    write_object(tmp_path, kernel)
    with pytest.raises(CodeObjectError, match=message):
        make(tmp_path)
