"""Run `flash-attn-rocm` of the environment that the build installed, with the same arguments."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(arguments: list[str]) -> int:
    environment = ROOT / "build" / "env"
    command = environment / ("Scripts/flash-attn-rocm.exe" if os.name == "nt" else "bin/flash-attn-rocm")
    if not command.exists():
        print(f"nothing is installed in {environment}; run ./pixiw run build first", file=sys.stderr)
        return 2
    return subprocess.call([command, *arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
