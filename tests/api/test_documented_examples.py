"""The Python examples of the documentation run as they stand, on the SDPA backend and through the CK kernels."""

from __future__ import annotations

import re

import pytest

from tests.documents import TEXT

EXAMPLES = re.findall(r"```python\n(.*?)```", TEXT, re.S)


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_runs_on_sdpa(example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASH_ATTN_ROCM_BACKEND", "sdpa")
    exec(compile(example, "example of the documentation", "exec"), {})


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_runs_on_ck_kernels(example: str, kernel_device: str) -> None:
    exec(compile(example, "example of the documentation", "exec"), {})
