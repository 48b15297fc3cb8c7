"""The SDPA backend against float64: drawn calls of every function with every feature."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from tests.api import features


@pytest.fixture(autouse=True)
def _on_sdpa(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASH_ATTN_ROCM_BACKEND", "sdpa")


_SETTINGS = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def _fixed(call: features.Fixed) -> None:
    call.check("cpu")


def _varlen(call: features.Varlen) -> None:
    call.check("cpu")


def _kvcache(call: features.KvCache) -> None:
    call.check("cpu")


test_fixed = settings(_SETTINGS, max_examples=40)(given(call=features.fixed_calls())(_fixed))
test_varlen = settings(_SETTINGS, max_examples=60)(given(call=features.varlen_calls())(_varlen))
test_kvcache = settings(_SETTINGS, max_examples=80)(given(call=features.kvcache_calls())(_kvcache))
test_fixed_wide = pytest.mark.wide(settings(_SETTINGS, max_examples=1000)(given(call=features.fixed_calls())(_fixed)))
test_varlen_wide = pytest.mark.wide(
    settings(_SETTINGS, max_examples=1000)(given(call=features.varlen_calls())(_varlen))
)
test_kvcache_wide = pytest.mark.wide(
    settings(_SETTINGS, max_examples=1000)(given(call=features.kvcache_calls())(_kvcache))
)
