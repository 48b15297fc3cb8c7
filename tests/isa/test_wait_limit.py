"""A full wait counter waits for the oldest load by itself: AMD's gfx950 forward kernel for 192 dims relies on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.isa.conftest import DEVICES
from tests.isa.hip_runtime import LAUNCH_FAILURE, Hip, HipError

GFX = "gfx942"


@pytest.fixture(autouse=True)
def device(hip: Hip) -> Iterator[None]:
    hip.call("hipSetDevice", DEVICES.index(GFX))
    yield
    hip.call("hipSetDevice", 0)


def launch(hip: Hip, isa_kernels: Path, loads: int) -> None:
    function = hip.kernel(isa_kernels / f"{GFX}_waits.co", f"loads_{loads}")
    hip.launch(function, b"\0" * 32, block=(64, 1, 1))


def test_sixteenth_load_waits_for_the_first(hip: Hip, isa_kernels: Path) -> None:
    launch(hip, isa_kernels, 16)


def test_fifteen_loads_are_outstanding(hip: Hip, isa_kernels: Path) -> None:
    with pytest.raises(HipError) as caught:
        launch(hip, isa_kernels, 15)
    assert caught.value.code == LAUNCH_FAILURE
    assert "uses v4, which" in caught.value.fault
    assert "is still loading" in caught.value.fault
