"""The fake HIP runtime of the host library's tests: compile it, describe kernels to it, run programs against it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("fake_hip.c")
SRC = Path(__file__).resolve().parents[2] / "src"
IMAGE = b"not really machine code"

# Deliberately scattered, with gaps and in another order than the library fills them: [offset, bytes].
ARGS: dict[str, list[int]] = {
    "q_ptr": [16, 8],
    "k_ptr": [0, 8],
    "v_ptr": [8, 8],
    "o_ptr": [32, 8],
    "seqlen_q": [24, 4],
    "seqlen_k": [28, 4],
    "hdim_q": [40, 4],
    "hdim_v": [44, 4],
    "num_head_q": [48, 4],
    "nhead_ratio_qk": [52, 4],
    "scale_s": [60, 4],
    "stride_q": [64, 4],
    "stride_k": [68, 4],
    "stride_v": [72, 4],
    "stride_o": [76, 4],
    "nhead_stride_q": [80, 4],
    "nhead_stride_k": [84, 4],
    "nhead_stride_v": [88, 4],
    "nhead_stride_o": [92, 4],
    "window_size_left": [96, 4],
    "window_size_right": [100, 4],
    "mask_type": [104, 4],
    "lse_ptr": [112, 8],
    "nhead_stride_lse": [120, 4],
    "batch_stride_lse": [124, 4],
    "batch_stride_q": [136, 8],
    "batch_stride_k": [128, 4],
    "batch_stride_v": [132, 4],
    "batch_stride_o": [144, 4],
}
KARGS_BYTES = 160
POINTERS = ("q_ptr", "k_ptr", "v_ptr", "o_ptr", "lse_ptr")


def kernel(name: str, **changes: Any) -> dict[str, Any]:
    """One row of kernels.json: a bf16 d64 forward kernel with padded sequence lengths, with `changes`."""
    row: dict[str, Any] = {
        "name": name,
        "op": "fmha_fwd",
        "code_object": 0,
        "dtype": "bf16",
        "hdim_q": 64,
        "hdim_v": 64,
        "mode": "batch",
        "mask": False,
        "bias": "none",
        "softcap": False,
        "dropout": False,
        "padding": "seqlen",
        "page": 0,
        "deterministic": False,
        "tile_m": 64,
        "tile_n": 32,
        "block_threads": 128,
        "kargs_bytes": KARGS_BYTES,
        "args": ARGS,
    }
    return row | changes


def standard_kernels() -> list[dict[str, Any]]:
    """Every padding with and without mask, head dims 64 and 128, bf16."""
    return [
        kernel(
            f"d{hdim}_{'mask' if mask else 'nomask'}_{padding}", hdim_q=hdim, hdim_v=hdim, mask=mask, padding=padding
        )
        for hdim in (64, 128)
        for mask in (False, True)
        for padding in ("none", "seqlen", "full")
    ]


def manifest(kernels: list[dict[str, Any]] | None = None, **changes: Any) -> dict[str, Any]:
    """A kernels.json for the fake GPU, with `changes`."""
    document: dict[str, Any] = {
        "schema": 1,
        "gfx": "gfx1201",
        "wave_size": 32,
        "profile": "fake",
        "compiler": "none",
        "ck": "none",
        "code_objects": [{"file": "fake.co", "sha256": hashlib.sha256(IMAGE).hexdigest(), "bytes": len(IMAGE)}],
        "kernels": standard_kernels() if kernels is None else kernels,
    }
    return document | changes


def write_kernels(root: Path, document: dict[str, Any], image: bytes = IMAGE, gfx: str = "gfx1201") -> None:
    """Lay out `root` like share/flash_attn_rocm with one GPU's kernels."""
    directory = root / gfx
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "kernels.json").write_text(json.dumps(document), encoding="utf-8")
    (directory / "fake.co").write_bytes(image)


@cache
def c_compiler() -> str:
    """A C compiler of this machine; the build needed one, so there is one."""
    candidates = [os.environ.get("CC", ""), "cc", "gcc", "clang", *(f"clang-{v}" for v in range(30, 15, -1))]
    for name in candidates:
        if name and (found := shutil.which(name)):
            return found
    raise RuntimeError(f"no C compiler found (looked for {candidates[1:]}); set CC")


def build_fake_hip(directory: Path, *, incomplete: bool = False, quiet: bool = False) -> Path:
    """Compile the fake runtime; `incomplete` lacks two functions, `quiet` logs nothing."""
    library = directory / ("incomplete.so" if incomplete else "quiet.so" if quiet else "fake_hip.so")
    # The name by which a process knows a HIP 7 runtime that it has loaded.
    flags = [
        "-shared",
        "-fPIC",
        "-Wl,-soname,libamdhip64.so.7",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-o",
        str(library),
    ]
    defines = ["-DFAKE_HIP_INCOMPLETE"] if incomplete else ["-DFAKE_HIP_QUIET"] if quiet else []
    subprocess.run([c_compiler(), *flags, *defines, str(SOURCE)], check=True)
    return library


@dataclass
class Run:
    """What a program run against the fake runtime printed and what the runtime saw."""

    returncode: int
    stdout: str
    stderr: str
    calls: list[dict[str, Any]] = field(default_factory=list)

    def launches(self) -> list[dict[str, Any]]:
        """Logged kernel launches, in order."""
        return [call for call in self.calls if call["call"] == "launch"]


# Imports torch once, then forks for every program: a start costs milliseconds instead of seconds.
_SERVER = """
import json, os, sys, traceback
import torch
for line in sys.stdin:
    request = json.loads(line)
    child = os.fork()
    if child == 0:
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.path.insert(0, os.environ["PYTHONPATH"])
        status = 0
        try:
            exec(compile(request["program"], "<program>", "exec"), {"__name__": "__main__"})
        except BaseException:
            traceback.print_exc()
            status = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@cache
def _server() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=SRC.parent
    )


def run_program(program: str, *, hip: Path, kernels: Path, log: Path, **environment: str) -> Run:
    """Run Python code in a process of its own whose HIP runtime is the fake one."""
    variables = {
        **{name: value for name, value in os.environ.items() if name != "FLASH_ATTN_ROCM_BACKEND"},
        "PYTHONPATH": str(SRC),
        "FLASH_ATTN_ROCM_EMULATE": "gfx1201",
        "FLASH_ATTN_ROCM_HIP_LIBRARY": str(hip),
        "FLASH_ATTN_ROCM_KERNELS": str(kernels),
        "FAKE_HIP_LOG": str(log),
        **environment,
    }
    outputs = {name: str(log.with_name(name)) for name in ("stdout", "stderr")}
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps({"program": program, "environment": variables, **outputs}) + "\n")
    server.stdin.flush()
    returncode = int(server.stdout.readline())
    stdout, stderr = (Path(outputs[name]).read_text(encoding="utf-8") for name in ("stdout", "stderr"))
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return Run(returncode, stdout, stderr, [json.loads(line) for line in lines])
