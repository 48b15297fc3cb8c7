"""Damaged, missing and unsuitable kernel packages: every one is an error that says what to install or update."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.api.conftest import RunFake
from tests.api.fake_runtime import ARGS, IMAGE, kernel, manifest, write_kernels

CALL = """
import torch
from flash_attn_rocm import flash_attn_func
q = torch.randn(1, 9, 2, {headdim}, dtype=torch.{dtype})
flash_attn_func(q, q, q{arguments})
"""


def call(headdim: int = 64, dtype: str = "bfloat16", arguments: str = "") -> str:
    """A program with one attention call."""
    return CALL.format(headdim=headdim, dtype=dtype, arguments=arguments)


def test_a_device_without_kernels_is_named(run_fake: RunFake) -> None:
    """The device is a gfx1100, and only gfx1201's kernels are there; the library cannot know what packages exist."""
    run = run_fake(call(), FAKE_HIP_GFX="gfx1100")
    assert run.returncode != 0
    assert "no kernels for GPU gfx1100 are installed" in run.stderr
    assert "If this version has kernels for it, they are in the package flash-attn-rocm-kernels-gfx1100" in run.stderr
    assert "which `GPU_ARCHS=gfx1100 ./pixiw run build --profile full` makes" in run.stderr
    assert "; installed: kernels for gfx1201)" in run.stderr
    assert "FLASH_ATTN_ROCM_BACKEND=sdpa" in run.stderr
    assert "HSA_OVERRIDE" not in run.stderr


def test_a_device_that_poses_as_another_is_explained(run_fake: RunFake) -> None:
    run = run_fake(call(), FAKE_HIP_GFX="gfx1100", HSA_OVERRIDE_GFX_VERSION="11.0.0")
    assert "no kernels for GPU gfx1100 are installed" in run.stderr
    assert "HSA_OVERRIDE_GFX_VERSION=11.0.0 makes every GPU pose as another: unset it" in run.stderr


def test_info_names_the_override_and_what_is_installed(run_fake: RunFake) -> None:
    program = "from flash_attn_rocm.cli import main; main(['info'])"
    run = run_fake(program, FAKE_HIP_GFX="gfx1100", HSA_OVERRIDE_GFX_VERSION="11.0.0")
    assert "\nHSA_OVERRIDE_GFX_VERSION=11.0.0\n" in run.stdout
    problems = [line for line in run.stdout.splitlines() if line.startswith("error: ")]
    assert problems[0].startswith("error: HSA_OVERRIDE_GFX_VERSION=11.0.0 makes every GPU pose as gfx1100")
    assert "no kernels for GPU gfx1100 are installed" in problems[1]
    assert "installed: kernels for gfx1201" in problems[1]


@pytest.mark.parametrize("wave_size", [32, 64])
def test_kernels_for_another_wave_size_are_refused(run_fake: RunFake, wave_size: int) -> None:
    run = run_fake(call(), document=manifest(wave_size=96 - wave_size), FAKE_HIP_WAVE_SIZE=str(wave_size))
    assert run.returncode != 0
    text = f"its kernels are for waves of {96 - wave_size}, but device 0 (gfx1201) has waves of {wave_size}"
    assert text in run.stderr
    assert "conda install --force-reinstall flash-attn-rocm-kernels-gfx1201" in run.stderr
    assert not run.launches()


def test_another_kernel_directory_is_followed_in_the_same_process(run_fake: RunFake, tmp_path: Path) -> None:
    """There and back again, with one kernel each: the library runs what Python chose."""
    for name in ("a", "b"):
        write_kernels(tmp_path / name, manifest([kernel(f"from_{name}")]))
    (tmp_path / "empty").mkdir()
    program = f"""
import os, torch
from flash_attn_rocm import flash_attn_func
from flash_attn_rocm.errors import KernelsNotInstalledError
q = torch.randn(1, 9, 2, 64, dtype=torch.bfloat16)
for name in ("a", "b", "a", "empty:b", "b:a"):
    os.environ["FLASH_ATTN_ROCM_KERNELS"] = ":".join({str(tmp_path)!r} + "/" + part for part in name.split(":"))
    flash_attn_func(q, q, q)
os.environ["FLASH_ATTN_ROCM_KERNELS"] = {str(tmp_path)!r} + "/empty"
try:
    flash_attn_func(q, q, q)
except KernelsNotInstalledError:
    print("not installed")
"""
    run = run_fake(program)
    assert run.returncode == 0, run.stderr
    assert [launch["kernel"][-1] for launch in run.launches()] == ["a", "b", "a", "b", "b"]
    assert run.stdout == "not installed\n"
    assert sum(entry["call"] == "hipModuleLoadData" for entry in run.calls) == 2


def test_other_emulated_gpus_need_another_process(run_fake: RunFake) -> None:
    program = (
        call()
        + """
import os
os.environ["FLASH_ATTN_ROCM_EMULATE"] = "gfx1201,gfx1201"
flash_attn_func(q, q, q)
"""
    )
    run = run_fake(program)
    assert "FLASH_ATTN_ROCM_EMULATE is gfx1201,gfx1201, but was gfx1201 when the HIP runtime was loaded" in run.stderr
    assert len(run.launches()) == 1


def test_feature_suffixes_of_the_device_name_are_ignored(run_fake: RunFake) -> None:
    assert run_fake(call(), FAKE_HIP_GFX="gfx1201:sramecc+:xnack-").returncode == 0


def test_python_names_the_package_before_anything_is_loaded(run_fake: RunFake, tmp_path: Path) -> None:
    run = run_fake(call(), FLASH_ATTN_ROCM_KERNELS=str(tmp_path))
    assert run.returncode != 0
    assert "KernelsNotInstalledError" in run.stderr
    assert "conda install flash-attn-rocm-kernels-gfx1201" in run.stderr
    assert not run.calls


@pytest.mark.parametrize(
    "image", [IMAGE[:-1], IMAGE + b"x", b"", b"Not really machine code"], ids=["cut", "longer", "empty", "edited"]
)
def test_a_damaged_code_object_is_refused(run_fake: RunFake, image: bytes) -> None:
    run = run_fake(call(), image=image)
    assert run.returncode != 0
    assert "is damaged" in run.stderr
    if len(image) == len(IMAGE):
        assert hashlib.sha256(image).hexdigest() in run.stderr
        assert hashlib.sha256(IMAGE).hexdigest() in run.stderr
    else:
        assert f"it has {len(image)} bytes, but kernels.json says {len(IMAGE)}" in run.stderr
    assert "conda install --force-reinstall flash-attn-rocm-kernels-gfx1201" in run.stderr
    assert not any(entry["call"] == "hipModuleLoadData" for entry in run.calls)


def test_an_absent_code_object_is_an_error(run_fake: RunFake) -> None:
    document = manifest(code_objects=[{"file": "absent.co", "sha256": "00", "bytes": 1}])
    run = run_fake(call(), document=document)
    assert run.returncode != 0
    assert "absent.co cannot be opened" in run.stderr


def test_hashes_agree_with_hashlib_for_every_padding_length(run_fake: RunFake, tmp_path: Path) -> None:
    """Lengths around SHA-256's block borders; one code object and one head dim each."""
    directory = tmp_path / "gfx1201"
    directory.mkdir()
    objects, kernels = [], []
    for index, length in enumerate([1, 55, 56, 57, 63, 64, 65, 119, 120, 128, 100_000]):
        image = bytes((index + i) % 255 + 1 for i in range(length - 1)) + b"\0"
        (directory / f"{length}.co").write_bytes(image)
        objects.append({"file": f"{length}.co", "sha256": hashlib.sha256(image).hexdigest(), "bytes": length})
        kernels.append(kernel(f"k{length}", code_object=index, hdim_q=8 * (index + 1), hdim_v=8 * (index + 1)))
    (directory / "kernels.json").write_text(json.dumps(manifest(kernels, code_objects=objects)), encoding="utf-8")
    program = """
import torch
from flash_attn_rocm import flash_attn_func
for headdim in range(8, 96, 8):
    q = torch.randn(1, 9, 2, headdim, dtype=torch.bfloat16)
    flash_attn_func(q, q, q)
"""
    run = run_fake(program, FLASH_ATTN_ROCM_KERNELS=str(tmp_path))
    assert run.returncode == 0, run.stderr
    assert [launch["kernel"] for launch in run.launches()] == [row["name"] for row in kernels]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            manifest(schema=2),
            "schema 2 is newer than this library reads (1). Update the library: conda update flash-attn-rocm",
        ),
        (
            manifest(schema=0),
            "schema 0 is older than this library reads (1). Update the kernels: conda update flash-attn-rocm-kernels-",
        ),
        ({key: value for key, value in manifest().items() if key != "profile"}, "field 'profile' is missing"),
        (manifest([{k: v for k, v in kernel("x").items() if k != "tile_m"}]), "kernel x: field 'tile_m' is missing"),
        (manifest([kernel("x", mask="yes")]), "kernel x: field 'mask' is \"yes\"; expected true or false"),
        (manifest([kernel("x", padding="some")]), "padding is 'some'; allowed: none, seqlen, full"),
        (manifest([kernel("x", code_object=3)]), "code_object is 3, but there are 1"),
        (manifest([kernel("x", args={"new_ptr": [0, 8]})]), "argument 'new_ptr' is unknown to this library"),
        (manifest([kernel("x", args={"q_ptr": [156, 8]})]), "argument 'q_ptr' [156,8] lies outside kargs_bytes 160"),
        (manifest(gfx="gfx942"), "holds kernels for gfx942, expected gfx1201"),
    ],
)
def test_a_manifest_that_cannot_be_used_says_why(run_fake: RunFake, document: dict[str, Any], message: str) -> None:
    run = run_fake(call(), document=document)
    assert run.returncode != 0
    assert message in run.stderr
    assert not run.launches()


INTEGERS = ("code_object", "hdim_q", "hdim_v", "tile_m", "tile_n", "block_threads", "kargs_bytes")
OPTIONAL = ("window_size_left", "window_size_right", "mask_type")


def contradictions() -> dict[str, tuple[dict[str, Any], str]]:
    """Every way in which a row can be wrong without being malformed JSON, with the words of its error."""
    cases: dict[str, tuple[dict[str, Any], str]] = {}
    for field in INTEGERS:
        for value in (64.0, 64.5, True, "64", None, [64], -1, 2**32 + 64 if field != "hdim_q" else 2**63, 2**64 + 64):
            cases[f"{field}={value}"] = (manifest([kernel("x", **{field: value})]), "kernel x: ")
    for name in ARGS:
        row = kernel("x", mask=name in OPTIONAL, args={key: slot for key, slot in ARGS.items() if key != name})
        cases[f"without {name}"] = (manifest([row]), f"argument '{name}' is missing, which such a kernel needs")
    slots = [
        ("q_ptr", [12, 8], "argument 'q_ptr' is [12,8]; expected"),
        ("q_ptr", [56, 4], "argument 'q_ptr' is [56,4]; expected"),
        ("seqlen_q", [26, 4], "argument 'seqlen_q' is [26,4]; expected"),
        ("seqlen_q", [56, 2], "argument 'seqlen_q' is [56,2]; expected"),
        ("seqlen_q", [56, 1], "argument 'seqlen_q' is [56,1]; expected"),
        ("scale_s", [152, 8], "argument 'scale_s' is [152,8]; expected"),
        ("seqlen_q", [28, 4], "arguments 'seqlen_q' and 'seqlen_k' overlap"),
        ("stride_k", [64, 8], "arguments 'stride_q' and 'stride_k' overlap"),
        ("seqlen_q", [4294967292, 4], "lies outside kargs_bytes 160"),
        ("seqlen_q", [24.0, 4], "argument 'seqlen_q' is [24.0,4]; expected [offset, size]"),
        ("seqlen_q", [4294967320, 4], "argument 'seqlen_q' is [4294967320,4]; expected [offset, size]"),
    ]
    for name, slot, message in slots:
        cases[f"{name}={slot}"] = (manifest([kernel("x", args=ARGS | {name: slot})]), message)
    for field in ("tile_m", "tile_n", "hdim_q", "hdim_v"):
        for value in (0, 4097):
            cases[f"{field}={value}"] = (
                manifest([kernel("x", **{field: value})]),
                f"kernel x: {field} is {value}; allowed: 1 to 4096",
            )
    for threads in (0, 48, 1056):
        cases[f"block_threads={threads}"] = (
            manifest([kernel("x", block_threads=threads)]),
            f"block_threads is {threads}; allowed: multiples of wave_size 32 up to 1024",
        )
    cases["kargs_bytes=4104"] = (manifest([kernel("x", kargs_bytes=4104)]), "kargs_bytes is 4104; allowed: up to 4096")
    cases["wave_size"] = (manifest(wave_size=0), "wave_size is 0; allowed: 32, 64")
    cases["schema"] = (manifest(schema=1.0), "field 'schema' is 1.0; expected an integer")
    cases["schema=true"] = (manifest(schema=True), "field 'schema' is true; expected an integer")
    for field, value, allowed in (("mode", "ragged", "batch, group"), ("bias", "elementwise", "none, alibi")):
        cases[field] = (manifest([kernel("x", **{field: value})]), f"{field} is '{value}'; allowed: {allowed}")
    cases["twice"] = (manifest([kernel("x"), kernel("x")]), "kernel x: there are several of this name")
    for feature, name in (("softcap", "logits_soft_cap"), ("dropout", "rp_undrop"), ("bias", "alibi_slope_ptr")):
        row = kernel("x", **{feature: "alibi" if feature == "bias" else True})
        cases[feature] = (manifest([row]), f"argument '{name}' is missing")
    for file in ("../fake.co", "/fake.co", "a/fake.co", "..\\fake.co", "C:fake.co", "", ".", "..", "fake.co\0x"):
        objects = [manifest()["code_objects"][0] | {"file": file}]
        cases[f"file={file!r}"] = (manifest(code_objects=objects), "expected the name of a file in this directory")
    return cases


CONTRADICTIONS = contradictions()
CALL_EACH = """
import json, os, torch
from flash_attn_rocm import flash_attn_func
q = torch.randn(1, 9, 2, 64, dtype=torch.bfloat16)
root = os.environ["FLASH_ATTN_ROCM_KERNELS"]
errors = []
for index in range({count}):
    os.environ["FLASH_ATTN_ROCM_KERNELS"] = f"{{root}}/{{index}}"
    try:
        flash_attn_func(q, q, q, window_size=(3, 3))
        errors.append("no error")
    except RuntimeError as error:
        errors.append(str(error))
print(json.dumps(errors))
"""


@pytest.fixture(scope="module")
def contradiction_errors(run_fake: RunFake, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The error of a call with each of those manifests, all in one process."""
    root = tmp_path_factory.mktemp("contradictions")
    for index, (document, _) in enumerate(CONTRADICTIONS.values()):
        write_kernels(root / str(index), document)
    run = run_fake(CALL_EACH.format(count=len(CONTRADICTIONS)), FLASH_ATTN_ROCM_KERNELS=str(root))
    assert run.returncode == 0, run.stderr
    assert not run.launches()
    return dict(zip(CONTRADICTIONS, json.loads(run.stdout), strict=True))


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_manifest_that_contradicts_itself_launches_nothing(contradiction_errors: dict[str, str], name: str) -> None:
    """A wrong slot or tile would not fail: it would compute wrong numbers."""
    error = contradiction_errors[name]
    assert CONTRADICTIONS[name][1] in error
    assert "conda install --force-reinstall flash-attn-rocm-kernels-gfx1201" in error


@pytest.mark.parametrize("what", ["directory", "pipe", "device"])
@pytest.mark.parametrize("name", ["kernels.json", "fake.co"])
def test_only_regular_files_are_read(run_fake: RunFake, tmp_path: Path, name: str, what: str) -> None:
    write_kernels(tmp_path, manifest())
    path = tmp_path / "gfx1201" / name
    path.unlink()
    if what == "directory":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    run = run_fake(call(), FLASH_ATTN_ROCM_KERNELS=str(tmp_path))
    assert run.returncode != 0
    assert "not a regular file. Reinstall" in run.stderr
    assert "conda install --force-reinstall flash-attn-rocm-kernels-gfx1201" in run.stderr


def test_bytes_that_are_no_text_are_escaped_in_messages(run_fake: RunFake, tmp_path: Path) -> None:
    """Messages become Python strings: raw bytes would hide them behind a UnicodeDecodeError."""
    write_kernels(tmp_path, manifest())
    (tmp_path / "gfx1201" / "kernels.json").write_bytes(b"{\xff\xfe\x01\xc0\xaf\xed\xa0\x80")
    run = run_fake(call(), FLASH_ATTN_ROCM_KERNELS=str(tmp_path))
    assert "UnicodeDecodeError" not in run.stderr
    assert "not valid JSON" in run.stderr
    assert "\\xff" in run.stderr


def test_paths_need_not_be_text(run_fake: RunFake, tmp_path: Path) -> None:
    directory = os.fsdecode(os.fsencode(tmp_path) + b"/k\xff\xc3\xa9")
    write_kernels(Path(directory), manifest())
    report = "from flash_attn_rocm.cli import main; main(['info']); main(['info', '--json'])"
    run = run_fake(call() + report, FLASH_ATTN_ROCM_KERNELS=directory)
    assert run.returncode == 0, run.stderr
    assert len(run.launches()) == 1
    (Path(directory) / "gfx1201" / "kernels.json").write_text("{}")
    run = run_fake(call(), FLASH_ATTN_ROCM_KERNELS=directory)
    assert "k\\xffé/gfx1201/kernels.json: field 'schema' is missing" in run.stderr


def test_a_manifest_that_is_not_json_says_how_to_reinstall(run_fake: RunFake, tmp_path: Path) -> None:
    (tmp_path / "gfx1201").mkdir()
    (tmp_path / "gfx1201" / "kernels.json").write_text('{"schema": 1,')
    run = run_fake(call(), FLASH_ATTN_ROCM_KERNELS=str(tmp_path))
    assert run.returncode != 0
    assert "not valid JSON" in run.stderr
    assert "conda install --force-reinstall flash-attn-rocm-kernels-gfx1201" in run.stderr


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (
            call(headdim=192),
            "head dim is 192; the installed kernels for gfx1201 (profile fake) have head dims: 64, 128",
        ),
        (call(dtype="float16"), "dtype is fp16; the installed kernels for gfx1201 (profile fake) have dtypes: bf16"),
        (call(arguments=", softcap=5.0"), "softcap is 5, but the installed kernels for gfx1201"),
        (call(arguments=", dropout_p=0.1"), "dropout_p is 0.1, but the installed kernels for gfx1201"),
        (
            call(arguments=", alibi_slopes=torch.ones(2)"),
            "alibi_slopes are given, but the installed kernels for gfx1201",
        ),
    ],
    ids=["head dim", "dtype", "softcap", "dropout", "alibi"],
)
def test_what_no_installed_kernel_covers(run_fake: RunFake, program: str, message: str) -> None:
    run = run_fake(program)
    assert run.returncode != 0
    assert "KernelUnavailableError: " + message in run.stderr
    assert "`./pixiw run build --arch gfx1201 --profile full`" in run.stderr
    assert "FLASH_ATTN_ROCM_BACKEND=sdpa" in run.stderr
    assert not run.launches()


def test_a_soft_cap_that_kernels_would_compute_too_coarsely(run_fake: RunFake) -> None:
    """Their tanh, 1 - 2 / (exp(2 x) + 1) in float32, is right to 6e-8: with a cap of 1e6 scores were off by 0.06."""
    for softcap, right in ((10000.0, "softcap is 10000, but the installed"), (10001.0, "soft caps end at 10000")):
        run = run_fake(call(arguments=f", softcap={softcap}"))
        assert "KernelUnavailableError: " in run.stderr
        assert right in run.stderr
        assert "FLASH_ATTN_ROCM_BACKEND=sdpa" in run.stderr
