"""What the Windows build is checked for: run by a Windows Python, real or under Wine, one check per process.

`python checks.py NAME DIRECTORY`; the directory holds `kernels` and `emulator`. Prints "passed NAME" last.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

DIRECTORY = Path(sys.argv[2])
RUNTIME = "amdhip64_7.dll"


def _package() -> Path:
    for place in sys.path:
        if (Path(place) / "flash_attn_rocm" / "lib" / "flash_attn_rocm.dll").exists():
            return Path(place) / "flash_attn_rocm"
    raise FileNotFoundError("flash_attn_rocm.dll is in no directory of sys.path")


def _load_without_torch_module() -> ctypes.CDLL:
    """The library with torch's DLLs but not the Python module, whose import takes long."""
    for place in sys.path:
        if (Path(place) / "torch" / "lib" / "torch_cpu.dll").exists():
            os.add_dll_directory(str(Path(place) / "torch" / "lib"))
    return ctypes.CDLL(str(_package() / "lib" / "flash_attn_rocm.dll"))


def _describe(library: ctypes.CDLL) -> dict[str, Any]:
    size = library.fa_rocm_describe(None, ctypes.c_size_t(0)) + 1
    buffer = ctypes.create_string_buffer(size)
    library.fa_rocm_describe(buffer, ctypes.c_size_t(size))
    table: dict[str, Any] = json.loads(buffer.value)
    return table


def check_decoy() -> None:
    """A HIP runtime in the working directory, or on PATH, is not loaded."""
    decoys = DIRECTORY / "decoys"
    decoys.mkdir(exist_ok=True)
    for name in (RUNTIME, "amdhip64_6.dll", "amdhip64.dll"):
        shutil.copyfile(DIRECTORY / "emulator" / "amdhip64.dll", decoys / name)
    os.chdir(decoys)
    os.environ["PATH"] = f"{decoys}{os.pathsep}{os.environ['PATH']}"
    report = _describe(_load_without_torch_module())
    assert "path" not in report["hip"], f"loaded {report['hip']['path']}"
    for part in (f"{RUNTIME} (loaded in this process): not loaded", f"{RUNTIME} (system search): Windows error 126"):
        assert part in report["hip"]["error"], report["hip"]["error"]
    assert "beside torch" in report["hip"]["error"]


def check_hip_path() -> None:
    """The HIP SDK's runtime is found by HIP_PATH, set while the process runs, in a directory with any name."""
    sdk = DIRECTORY / "HIP SDK für 火"
    (sdk / "bin").mkdir(parents=True, exist_ok=True)
    shutil.copyfile(DIRECTORY / "emulator" / "amdhip64.dll", sdk / "bin" / RUNTIME)
    library = _load_without_torch_module()
    os.environ["HIP_PATH"] = str(sdk)
    report = _describe(library)
    assert report["hip"]["path"] == str(sdk / "bin" / RUNTIME), report["hip"]


def check_loaded_runtime() -> None:
    """A runtime that the process has loaded already is used, wherever it is from."""
    loaded = DIRECTORY / "loaded"
    loaded.mkdir(exist_ok=True)
    shutil.copyfile(DIRECTORY / "emulator" / "amdhip64.dll", loaded / RUNTIME)
    ctypes.CDLL(str(loaded / RUNTIME))
    os.environ["HIP_PATH"] = str(DIRECTORY / "HIP SDK für 火")
    assert _describe(_load_without_torch_module())["hip"]["path"] == str(loaded / RUNTIME)


def check_attention() -> None:
    """Kernels for gfx1201, from a directory with spaces and other letters, give what float64 gives; errors arrive."""
    kernels = DIRECTORY / "Kernel für 火"
    shutil.rmtree(kernels, ignore_errors=True)
    shutil.copytree(DIRECTORY / "kernels", kernels, copy_function=shutil.copyfile)  # Wine 8 lacks CopyFile2
    os.environ["FLASH_ATTN_ROCM_KERNELS"] = str(kernels)
    os.environ["FLASH_ATTN_ROCM_EMULATOR"] = str(DIRECTORY / "emulator")
    os.environ["FLASH_ATTN_ROCM_EMULATE"] = "gfx1201"
    os.environ["FLASH_ATTN_ROCM_BACKEND"] = "ck"
    import torch

    from flash_attn_rocm import ops
    from flash_attn_rocm.kernel_manifest import read_manifest
    from flash_attn_rocm.verification import worker
    from flash_attn_rocm.verification.cases import plan_cases

    cases = [
        case
        for case in plan_cases(read_manifest(kernels / "gfx1201" / "kernels.json")["kernels"])
        if case.head_dim <= 64
    ]
    failed = []
    for case in cases:
        result = worker.run_case(case, "cpu")
        print(f"{result.status} {case.name}: error {result.error:.2e}, allowed {result.allowed:.2e}", flush=True)
        failed += [case.name] if result.status != "passed" or result.backend != "ck" else []
    assert cases
    assert not failed, failed
    launches = json.loads(ops.read_json("fa_rocm_launch_counts"))
    print(f"{len(cases)} cases, {sum(count > 0 for count in launches.values())} kernels", flush=True)
    # Last: Wine 8 damages the heap when torch throws, its own errors included.
    q = torch.randn(1, 9, 2, 512, dtype=torch.bfloat16)
    text = "no error"
    try:
        torch.ops.flash_attn_rocm.fwd(q, q, q[:, :5], None, None, softmax_scale=1.0)
    except RuntimeError as error:
        text = str(error)
    assert "shapes do not agree" in text, text


def main() -> None:
    globals()[f"check_{sys.argv[1]}"]()
    print(f"passed {sys.argv[1]}", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
