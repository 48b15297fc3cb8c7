"""How many compiles run at once, and the estimates behind it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ck.bwd_tiling import BwdTile
from ck.plan import KernelSpec, Unit, plan_units
from ck.tiling import Tile
from ck.variants import Variant
from flash_attn_rocm.archs import load_arch
from scripts.buildlib.jobs import available_cpus, available_mib, choose_jobs, estimate_cpu_s, estimate_peak_mib

TILE = Tile((64, 64, 32, 128, 32, 128), (4, 1, 1), (16, 16, 16))
UNITS = plan_units(load_arch("gfx1201"), "smoke")  # of 1 to 3 kernels, those of backward the largest


def unit(count: int, padding: str = "none", hdim: int = 128) -> Unit:
    variant = Variant("fmha_fwd", hdim, "bf16", "batch", False, "none", False, False, padding)
    return Unit("unit", "gfx1201", tuple(KernelSpec("gfx1201", variant, TILE) for _ in range(count)))


# Peak memory measured with clang 22.1.8: 16 kernels 1.3 GB, 6 kernels 0.82 GB, 1 kernel 0.75 GB.
@pytest.mark.parametrize(("kernels", "measured_mib"), [(16, 1300), (6, 805), (1, 750)])
def test_memory_estimate_is_not_below_what_was_measured(kernels: int, measured_mib: int) -> None:
    assert measured_mib <= estimate_peak_mib(unit(kernels)) <= measured_mib * 1.25


# CPU seconds measured: d128 36 for 4 kernels, with padded head dim 33 for 2; 299 for 60 of the profile full in 4 files.
@pytest.mark.parametrize(
    ("kernels", "padding", "measured_s"), [(4, "none", 36), (2, "full", 33), (15, "none", 75), (15, "full", 75)]
)
def test_time_estimate_is_close_to_what_was_measured(kernels: int, padding: str, measured_s: float) -> None:
    assert estimate_cpu_s(unit(kernels, padding)) == pytest.approx(measured_s, rel=0.3)


def bwd_unit(count: int) -> Unit:
    variant = Variant("fmha_bwd", 128, "bf16", "batch", True, "none", False, False, "full")
    tile = BwdTile((32, 64, 16, 128), (2, 4), (2, 4), (1, 8), (16, 16, 16), False)
    return Unit("unit", "gfx1201", tuple(KernelSpec("gfx1201", variant, tile) for _ in range(count)))


# Measured: 51 CPU-s and 1138 MiB for 2 kernels, 55 and 1159 for 3.
@pytest.mark.parametrize(("kernels", "measured_s", "measured_mib"), [(2, 51, 1138), (3, 55, 1159)])
def test_estimates_of_backward(kernels: int, measured_s: float, measured_mib: int) -> None:
    assert estimate_cpu_s(bwd_unit(kernels)) == pytest.approx(measured_s, rel=0.3)
    assert estimate_peak_mib(bwd_unit(kernels)) == pytest.approx(measured_mib, rel=0.05)


def test_the_estimate_of_a_whole_profile() -> None:
    """Measured for the profile full of gfx1201, before it had backward of d192 and d256: 5,954 CPU-s."""
    plan = plan_units(load_arch("gfx1201"), "full")
    first = {each.name: each.specs[0].variant for each in plan}
    then = [each for each in plan if first[each.name].op != "fmha_bwd" or first[each.name].hdim <= 128]
    assert sum(map(estimate_cpu_s, then)) == pytest.approx(5954, rel=0.1)


def test_kernels_of_our_own_need_no_headers() -> None:
    """Measured: 2.2 CPU-s for 5."""
    variant = Variant("bwd_dot", 256, "bf16", "batch", False, "none", False, False, "full")
    plain = Unit("unit", "gfx1201", tuple(KernelSpec("gfx1201", variant, None) for _ in range(5)))
    assert estimate_cpu_s(plain) == pytest.approx(2.2, rel=0.3)


@pytest.mark.parametrize(
    ("cpus", "free_mib", "max_jobs", "jobs", "reason"),
    [
        (2, 16000, None, 2, "cores"),
        (64, 64000, None, 8, "units to compile"),
        (8, 3000, None, 2, "free memory: (3000 - 512) MiB / 1085 MiB a job"),
        (8, 300, None, 1, "free memory"),
        (8, 64000, 3, 3, "MAX_JOBS"),
        (2, 64000, 16, 2, "cores"),
        (2, None, None, 2, "cores"),
    ],
)
def test_jobs_are_the_smallest_limit(
    cpus: int, free_mib: int | None, max_jobs: int | None, jobs: int, reason: str
) -> None:
    got, why = choose_jobs(UNITS, cpus, free_mib, max_jobs)
    assert got == jobs
    assert why.startswith(reason)


def test_nothing_to_compile_still_gives_one_job() -> None:
    assert choose_jobs([], 8, 100, None)[0] == 1


def test_free_memory_respects_the_cgroup(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:       33554432 kB\nMemAvailable:   16777216 kB\n")
    assert available_mib(meminfo, tmp_path) == 16384
    (tmp_path / "memory.max").write_text("4294967296\n")
    (tmp_path / "memory.current").write_text("1073741824\n")
    assert available_mib(meminfo, tmp_path) == 3072
    (tmp_path / "memory.max").write_text("max\n")
    assert available_mib(meminfo, tmp_path) == 16384
    assert available_mib(tmp_path / "none", tmp_path) is None


def test_at_least_one_core() -> None:
    assert available_cpus() >= 1
