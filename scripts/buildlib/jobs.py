"""How long and how big a compile will be, and how many may run at once on this machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ck.plan import KernelSpec, Unit

# Measured with clang 22.1.8 on gfx1201: 16 kernels in one file peak at 1.3 GB, 6 at 0.82, 4 at 0.80, 1 at 0.75.
_BASE_MIB = 750
_BWD_BASE_MIB = 1050  # backward: 3 kernels in one file peak at 1.16 GB, 2 at 1.14
_KERNEL_MIB = 35
# Measured on the 826 kernels of the profile full for gfx1201, 5,954 CPU-s: 15 forward kernels in one file take 55
# (d32) to 81 CPU-s (d256), 9 of split-KV 40 to 61, 4 of backward 47 to 54.
_BASE_CPU_S = 17.0
_PADDED_HDIM_FACTOR = 1.3
_BWD_BASE_CPU_S = 34.0
_BWD_CPU_S = 4.5
_PLAIN_CPU_S = 0.5  # kernels of our own, without CK's headers: 2.2 CPU-s for 5
# Left to everything else on the machine.
_RESERVE_MIB = 512


def _is_backward(unit: Unit) -> bool:
    return any(spec.variant.op == "fmha_bwd" for spec in unit.specs)


def estimate_peak_mib(unit: Unit) -> int:
    """Memory one compile needs: the headers' (backward: more) and 35 MiB for each kernel."""
    return (_BWD_BASE_MIB if _is_backward(unit) else _BASE_MIB) + _KERNEL_MIB * len(unit.specs)


def _kernel_cpu_s(spec: KernelSpec) -> float:
    if spec.variant.op == "fmha_bwd":
        return _BWD_CPU_S
    seconds = 2.4 + spec.variant.hdim / 160
    return seconds * (_PADDED_HDIM_FACTOR if spec.variant.padding == "full" else 1.0)


def estimate_cpu_s(unit: Unit) -> float:
    """CPU seconds one compile takes: the headers once, then each kernel by head dim and padding."""
    if all(spec.tile is None for spec in unit.specs):
        return _PLAIN_CPU_S * len(unit.specs)
    base = _BWD_BASE_CPU_S if _is_backward(unit) else _BASE_CPU_S
    return base + sum(_kernel_cpu_s(spec) for spec in unit.specs)


def available_cpus() -> int:
    """Cores this process may use, by affinity and by its cgroup's quota."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = Path("/sys/fs/cgroup/cpu.max")
    if quota.exists():
        limit, period = quota.read_text(encoding="ascii").split()
        if limit != "max":
            cpus = min(cpus, max(1, int(limit) // int(period)))
    return cpus


def available_mib(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Memory that can be used without swapping, also within the cgroup's limit; None where the system does not say."""
    if not meminfo.exists():
        return None
    fields = dict(line.split(":", 1) for line in meminfo.read_text(encoding="ascii").splitlines() if ":" in line)
    free = int(fields["MemAvailable"].split()[0]) // 1024
    limit, used = cgroup / "memory.max", cgroup / "memory.current"
    if limit.exists() and used.exists() and (text := limit.read_text(encoding="ascii").strip()) != "max":
        free = min(free, (int(text) - int(used.read_text(encoding="ascii"))) // (1024 * 1024))
    return free


def choose_jobs(units: Sequence[Unit], cpus: int, free_mib: int | None, max_jobs: int | None) -> tuple[int, str]:
    """Compiles at once, and why: cores, (free memory - 512 MiB) / the largest unit's need, or MAX_JOBS; at least 1."""
    limits = {"cores": cpus, "units to compile": max(1, len(units))}
    if free_mib is not None and units:
        need = max(estimate_peak_mib(unit) for unit in units)
        reason = f"free memory: ({free_mib} - {_RESERVE_MIB}) MiB / {need} MiB a job"
        limits[reason] = max(1, (free_mib - _RESERVE_MIB) // need)
    if max_jobs is not None:
        limits["MAX_JOBS"] = max_jobs
    reason = min(limits, key=lambda name: limits[name])
    return limits[reason], reason
