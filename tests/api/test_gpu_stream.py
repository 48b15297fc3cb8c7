"""On a GPU the op launches on torch's current stream with the tensors' own addresses.

The fake HIP runtime only records the launch, so any GPU that torch can use will do, an NVIDIA GPU too.
"""

from __future__ import annotations

import json

import pytest
import torch

from tests.api.conftest import RunFake
from tests.api.fake_runtime import ARGS

PROGRAM = """
import json, torch
from flash_attn_rocm import ops
ops.load()
q = torch.randn(2, 70, 4, 64, device="cuda", dtype=torch.bfloat16)
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    out, lse = torch.ops.flash_attn_rocm.fwd(q, q, q, softmax_scale=1.0)
torch.ops.flash_attn_rocm.fwd(q, q, q, softmax_scale=1.0)
print(json.dumps([stream.cuda_stream, torch.cuda.current_stream().cuda_stream, q.data_ptr(), out.data_ptr()]))
"""


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU, and streams exist only on one")
def test_launches_go_to_the_current_stream(run_fake: RunFake) -> None:
    run = run_fake(PROGRAM)
    assert run.returncode == 0, run.stderr
    side, default, q, out = json.loads(run.stdout)
    first, second = run.launches()
    assert (first["stream"], second["stream"]) == (side, default)
    assert side != default
    arguments = bytes.fromhex(first["arguments"])
    for name, pointer in (("q_ptr", q), ("o_ptr", out)):
        assert int.from_bytes(arguments[ARGS[name][0] :][:8], "little") == pointer
    names = [call["call"] for call in run.calls]
    assert "hipHostRegister" not in names
    assert "hipStreamSynchronize" not in names
