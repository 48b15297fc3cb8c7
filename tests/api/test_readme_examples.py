"""The Python examples of the README run as they stand, on the SDPA backend and through the CK kernels."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.S)


def test_the_readme_has_an_example() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_runs_on_sdpa(example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASH_ATTN_ROCM_BACKEND", "sdpa")
    exec(compile(example, "README.md", "exec"), {})


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_runs_on_ck_kernels(example: str, kernel_device: str) -> None:
    exec(compile(example, "README.md", "exec"), {})
