"""What users reported about FlashAttention-2, each with the right answer; ids B0 to B25 are those of the collection.

Each test runs on every backend of BACKENDS. Sources: threads of Dao-AILab/flash-attention, ROCm and vllm-project, named
with each test.
"""

from __future__ import annotations

import pytest

BACKENDS = ["sdpa", "ck"]


@pytest.fixture(params=BACKENDS)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The device on which this backend runs."""
    if request.param == "ck":
        return str(request.getfixturevalue("kernel_device"))
    monkeypatch.setenv("FLASH_ATTN_ROCM_BACKEND", "sdpa")
    return "cpu"
