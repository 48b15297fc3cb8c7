"""Split barriers of gfx12: signal and wait in turn, else a fault. The ISA pseudo-code itself only counts signals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.isa.hip_runtime import LAUNCH_FAILURE, Hip, HipError, pointers


@pytest.fixture
def code(isa_kernels: Path) -> Path:
    return isa_kernels / "gfx1201_barriers.co"


@pytest.mark.parametrize("waves", [1, 2, 4])
@pytest.mark.parametrize(
    ("kernel", "instruction", "text"),
    [
        ("wait_without_signal", "s_barrier_wait", "waits for the workgroup's barrier without having signalled it"),
        ("wait_before_signal", "s_barrier_wait", "waits for the workgroup's barrier without having signalled it"),
        ("second_wait", "s_barrier_wait", "waits for the workgroup's barrier without having signalled it"),
        ("second_signal", "s_barrier_signal", "signals the workgroup's barrier again without having waited for it"),
        ("signal_for_another", "s_barrier_signal", "signals the workgroup's barrier again"),
        ("signal_without_wait", "s_endpgm", "the wave ends between its signal to the workgroup's barrier and its wait"),
        ("wait_for_trap_barrier", "s_barrier_wait", "only the workgroup barrier (-1) is emulated"),
    ],
)
def test_barrier_used_wrongly(hip: Hip, code: Path, kernel: str, instruction: str, text: str, waves: int) -> None:
    with pytest.raises(HipError) as caught:
        hip.launch(hip.kernel(code, kernel), bytes(32), block=(32 * waves, 1, 1))
    assert caught.value.code == LAUNCH_FAILURE
    assert f"kernel {kernel}, pc 0x" in caught.value.fault
    assert f'instruction "{instruction}' in caught.value.fault
    assert text in caught.value.fault


def test_barrier_used_rightly(hip: Hip, code: Path) -> None:
    result = hip.buffer(np.zeros(64, np.uint32))
    hip.launch(hip.kernel(code, "used_rightly"), pointers(result).ljust(32, b"\0"), block=(64, 1, 1))
    np.testing.assert_array_equal(result.read(), (np.arange(64) ^ 32) + 1)
    result.free()
