"""A C program that uses the emulated runtime as any program uses HIP, with two devices of different GPUs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def test_program(emulator: Path, isa_kernels: Path) -> None:
    done = subprocess.run(
        [isa_kernels / "hip_program", emulator / "libamdhip64.so", isa_kernels / "gfx1201_hip.co"],
        env={**os.environ, "FLASH_ATTN_ROCM_EMULATE": "gfx1201,gfx1200"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "passed\n"), done.stdout + done.stderr
