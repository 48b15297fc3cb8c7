"""The benchmark of the host's cost runs, and what it counts: tensors made and kernels launched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_a_call_makes_its_results_and_nothing_else(host_library: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.json"
    command = [sys.executable, str(ROOT / "scripts" / "bench_host.py"), "--seconds", "0.02", "--json", str(rows)]
    environment = {**os.environ, "FLASH_ATTN_ROCM_LIBRARY": str(host_library)}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "USDT" not in run.stderr
    counted = {row["call"]: (row["tensors"], row["launches"]) for row in json.loads(rows.read_text(encoding="utf-8"))}
    assert counted["flash_attn_func"] == (2, 1)  # out and lse
    assert counted["flash_attn_varlen_func"] == (2, 1)
    # One workspace besides: packed queries, sequence tables, the parts' results and their lse.
    for call in ("flash_attn_with_kvcache", "flash_attn_with_kvcache, append", "flash_attn_with_kvcache, pages"):
        assert counted[call] == (3, 3)
