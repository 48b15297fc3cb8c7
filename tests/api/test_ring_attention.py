"""Attention to a sequence split among processes: ring-flash-attn, unmodified, on the drop-in flash_attn.

The example of docs/ring-attention.md runs as it stands: two processes that talk through gloo, each on an emulated GPU.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.api.locked_packages import ROOT, locked_packages
from tests.documents import TEXT

EXAMPLE = ROOT / "examples" / "ring_attention.py"
# Runs the example, and leaves what each process launched on its GPU.
WRAPPER = """
import os, runpy, sys
from pathlib import Path
from flash_attn_rocm import ops
try:
    runpy.run_path({example!r}, run_name="__main__")
finally:
    Path({folder!r}, os.environ["RANK"]).write_text(ops.read_json("fa_rocm_launch_counts"))
"""


def test_two_processes_compute_what_one_does(kernel_device: str, tmp_path: Path) -> None:
    """Forward and backward, plain ring and zigzag, by CK's kernels in both processes."""
    if kernel_device != "cpu":
        pytest.skip("a real GPU is in use")
    wrapper = tmp_path / "wrapper.py"
    wrapper.write_text(WRAPPER.format(example=str(EXAMPLE), folder=str(tmp_path)), encoding="utf-8")
    paths = [ROOT / "src", ROOT / "compat", locked_packages("ring")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths)), "OMP_NUM_THREADS": "1"}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    shape = ["--seqlen", "200", "--heads", "2", "--headdim", "64"]
    done = subprocess.run(
        [*torchrun, str(wrapper), *shape], env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    errors = dict(re.findall(r"^(\w+): 2 processes differ from one by (\S+), allowed 0.01$", done.stdout, re.M))
    assert set(errors) == {"ring", "zigzag"}
    assert all(0.0 < float(error) <= 0.01 for error in errors.values())
    for rank in ("0", "1"):
        launches = json.loads((tmp_path / rank).read_text(encoding="utf-8"))
        assert {name.split("_gfx1201")[0] for name, count in launches.items() if count} >= {"fmha_fwd", "fmha_bwd"}


def test_the_readme_names_the_example() -> None:
    (command,) = re.findall(r"^torchrun .*$", TEXT, re.M)
    assert command.split()[3] == EXAMPLE.relative_to(ROOT).as_posix()
    assert command in EXAMPLE.read_text(encoding="utf-8")
