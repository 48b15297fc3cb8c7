"""The optional checks: each finds a kernel that breaks its rule, and lets one pass that just does not."""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.isa.conftest import GFX, RDNA
from tests.isa.hip_runtime import INVALID_VALUE, LAUNCH_FAILURE, Hip, HipError

RACES = ["write_read", "read_write", "write_write", "readers_write", "split_barrier"]
RACES += ["many_reads", "mixed_reads", "atomic_read", "write_atomic", "read_atomic", "same_write_read"]
RACES_ONLY = ["atomic_write"]
ORDERED_ONLY = ["atomics"]
SPLIT_BARRIERS = ["split_barrier"]  # where one instruction signals and waits, nothing can be between
SEEDS = range(8)


@pytest.fixture
def code(isa_kernels: Path, rdna: str) -> Path:
    return isa_kernels / f"{rdna}_checks.co"


@pytest.fixture(autouse=True)
def default_checks(hip: Hip) -> Iterator[None]:
    yield
    choose(hip, None)


def choose(hip: Hip, names: str | None, seed: int = 0) -> None:
    text = None if names is None else names.encode()
    hip.call("flash_attn_rocm_emulator_set_checks", text, ctypes.c_ulonglong(seed))


def run(hip: Hip, code: Path, kernel: str, waves: int = 1, second: int = 0) -> None:
    """Looks the kernel up anew: the wait check is decided then. Pointer 0 is a buffer, `second` the next qword."""
    buffer = hip.buffer(np.zeros(1024, np.uint32))
    module = hip.load(code.read_bytes())
    try:
        function = hip.function(module, kernel)
        hip.launch(function, struct.pack("<QQ", buffer.address, second).ljust(32, b"\0"), block=(32 * waves, 1, 1))
    finally:
        hip.call("hipModuleUnload", module)
        buffer.free()


def fault_of(hip: Hip, code: Path, kernel: str, waves: int = 1, second: int = 0) -> str:
    with pytest.raises(HipError) as caught:
        run(hip, code, kernel, waves, second)
    assert caught.value.code == LAUNCH_FAILURE
    return caught.value.fault


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("rdna", "rule"),
    [(gpu, rule) for gpu in RDNA for rule in (*RACES, *RACES_ONLY) if rule not in SPLIT_BARRIERS or gpu == GFX],
    indirect=["rdna"],
)
def test_race(hip: Hip, code: Path, rule: str, seed: int) -> None:
    """Found whatever the order in which the waves happen to run."""
    choose(hip, "races,order", seed)
    fault = fault_of(hip, code, f"race_{rule}", waves=2)
    waves = re.search(r"LDS race: this .* of wave (\d) at .*, wave (\d), lane", fault)
    assert waves is not None, fault
    assert set(waves.groups()) == {"0", "1"}
    assert len(set(re.findall(r"pc (0x[0-9a-f]+)", fault))) == (1 if rule == "write_write" else 2)
    assert re.search(r", address 0x[0-9a-f]+; seed of the wave order ", fault), fault


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("rule", [*RACES, *ORDERED_ONLY])
def test_no_race(hip: Hip, code: Path, rule: str, seed: int) -> None:
    choose(hip, "races,order", seed)
    run(hip, code, f"ordered_{rule}", waves=2)


@pytest.mark.parametrize("rule", RACES)
def test_races_are_found_only_where_asked(hip: Hip, code: Path, rule: str) -> None:
    choose(hip, "none")
    run(hip, code, f"race_{rule}", waves=2)


def test_race_names_both_instructions_and_the_byte(hip: Hip, code: Path) -> None:
    choose(hip, "races")
    fault = fault_of(hip, code, "race_write_read", waves=2)
    # Wave 0 runs to its end first, so its read of the other half comes before the write.
    assert 'instruction "ds_store_b32 v1, v0": LDS race: this write and the read of wave 0 at pc 0x' in fault
    assert (
        '"ds_load_b32 v4, v2" have no barrier between them; workgroup (0, 0, 0), wave 1, lane 0, address 0x80' in fault
    )
    assert "seed" not in fault


@pytest.mark.parametrize(
    ("rule", "register", "load"),
    [
        ("load", "v5", "global_load_b32 v5, v1, s[4:5]"),
        ("lds", "v7", "ds_load_b32 v7, v1"),
        ("both", "v7", "ds_load_b32 v7, v1"),
        ("idle", "v4", "global_load_b32 v4, v1, s[4:5]"),
        ("store", "v4", "global_load_b32 v4, v1, s[4:5]"),
        ("address", "v4", "global_load_b32 v4, v1, s[4:5]"),
        ("overwrite", "v4", "global_load_b32 v4, v1, s[4:5]"),
        ("atomic", "v8", "ds_add_rtn_u32 v8, v1, v0"),
        ("scalar", "s4", "s_load_b32 s4, s[0:1]"),
        ("loop", "v4", "global_load_b32 v4, v1, s[4:5]"),
    ],
)
def test_early_use(hip: Hip, code: Path, rule: str, register: str, load: str) -> None:
    choose(hip, "waits")
    fault = fault_of(hip, code, f"early_{rule}")
    zero = "(, 0x0|, null)?"  # how the offset 0 of a scalar load is printed
    text = rf': uses {register}, which pc 0x[0-9a-f]+, "{re.escape(load)}{zero}" is still loading: no wait between'
    assert re.search(text, fault), fault


@pytest.mark.parametrize("rule", ["load", "lds", "both", "idle", "overwrite", "source", "scalar", "loop"])
def test_waited_use(hip: Hip, code: Path, rule: str) -> None:
    choose(hip, "waits")
    run(hip, code, f"waited_{rule}")


def test_only_paths_that_run_count(hip: Hip, code: Path) -> None:
    choose(hip, "waits")
    run(hip, code, "early_on_one_path", second=0)
    assert "uses v4" in fault_of(hip, code, "early_on_one_path", second=1)
    choose(hip, "none")
    run(hip, code, "early_on_one_path", second=1)


def tickets(hip: Hip, code: Path) -> tuple[int, ...]:
    result = hip.buffer(np.zeros(4, np.uint32))
    hip.launch(hip.kernel(code, "tickets"), struct.pack("<Q", result.address).ljust(32, b"\0"), block=(128, 1, 1))
    values = tuple(int(value) for value in result.read())
    result.free()
    return values


def test_order(hip: Hip, code: Path) -> None:
    """Without it each wave runs to the barrier and the last goes on; with it the seed says who runs when."""
    choose(hip, "none")
    assert tickets(hip, code) == (1, 2, 3, 0)
    seen = []
    for seed in range(16):
        choose(hip, "order", seed)
        seen.append(tickets(hip, code))
        assert tickets(hip, code) == seen[-1]
    assert len(set(seen)) > 4
    assert any(len(set(values)) < 4 for values in seen), "no wave was interrupted between its load and its store"


def test_unknown_check(hip: Hip) -> None:
    with pytest.raises(HipError) as caught:
        choose(hip, "races,colours")
    assert caught.value.code == INVALID_VALUE
    assert '"colours" is not one of all, none, races, waits, order' in caught.value.fault
