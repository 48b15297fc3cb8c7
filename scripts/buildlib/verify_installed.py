"""Run `flash-attn-rocm verify` of an environment, and make sure that it was the kernels that were verified."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

from scripts.buildlib.errors import BuildError


def torch_has_hip(prefix: Path) -> bool:
    """Whether the torch of an environment is one for AMD GPUs."""
    code = "import torch; raise SystemExit(torch.version.hip is None)"
    return subprocess.call([str(prefix / "bin" / "python"), "-c", code]) == 0


def run_verify(prefix: Path, gfx: str, reports: Path, *, emulated: bool, say: Callable[[str], None]) -> int:
    """How many cases passed, all on the kernels of this GPU; the report is left in `reports`.

    Raises:
        BuildError: a case failed, or torch's own attention or another GPU was verified.
    """
    report = reports / f"{gfx}{'-emulated' if emulated else ''}.json"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    options = ["--emulate", gfx] if emulated else []
    command = [str(prefix / "bin" / "flash-attn-rocm"), "verify", *options, "--json", str(report)]
    say(f"$ {shlex.join(command)}")
    if code := subprocess.call(command):
        raise BuildError(f"`{shlex.join(command)}` ended with exit code {code}")
    result = json.loads(report.read_text(encoding="utf-8"))
    if (result["backend"], result["gfx"]) != ("ck", gfx) or not result["cases"]:
        raise BuildError(
            f"`{shlex.join(command)}` verified {len(result['cases'])} cases on backend {result['backend']} of "
            f"{result['gfx']} ({result['reason']}); expected backend ck of {gfx}"
        )
    return len(result["cases"])
