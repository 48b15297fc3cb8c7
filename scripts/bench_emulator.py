"""Measure the emulated GPU: million wave instructions a second per kernel, one core or all, checks off or on."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from flash_attn_rocm.archs import load_arch  # noqa: E402
from tests.isa.attention import Case, run_forward  # noqa: E402
from tests.isa.conftest import emulator_directory  # noqa: E402
from tests.isa.hip_runtime import Hip  # noqa: E402

# Million wave instructions a second on one core with checks off, by wave size: what is to be reached, and what the
# prototype of this emulator reached with CK's and AMD's hand-written forward kernels.
TARGETS = {32: "60", 64: "25"}
PROTOTYPE = {32: "24", 64: "6-11"}
CASE = Case(512, 512)
CORES = len(os.sched_getaffinity(0))


class TimedHip(Hip):
    """Remembers the CPU and wall seconds of the last launch."""

    cpu_s = wall_s = 0.0

    def launch(self, *arguments: Any, **options: Any) -> None:
        cpu, wall = time.process_time(), time.perf_counter()
        super().launch(*arguments, **options)
        self.cpu_s, self.wall_s = time.process_time() - cpu, time.perf_counter() - wall


class Rates:
    """Million wave instructions a second: by CPU time, and by wall time on one core and on all.

    What others do on the machine at the same time lowers the second; then only CPU time says how the work scales.
    """

    one_core = checked = all_cores = one_core_wall = all_cores_wall = 0.0

    @property
    def scaling(self) -> str:
        wall, cpu = self.all_cores_wall / self.one_core_wall, self.one_core / self.all_cores
        return f"{CORES} cores {wall:.2f} times as fast for {cpu:.2f} times the CPU time"


@contextmanager
def one_core() -> Iterator[None]:
    """The emulator uses as many threads as the process may use cores."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def measure(hip: TimedHip, directory: Path, manifest: dict[str, Any], kernel: dict[str, Any], repeats: int) -> Rates:
    """The best of several runs: others share the machine."""
    rates = Rates()
    for checks in ("none", "all"):
        hip.call("flash_attn_rocm_emulator_set_checks", checks.encode(), ctypes.c_ulonglong(0))
        for _ in range(repeats):
            before = hip.executed()
            with one_core():
                run_forward(hip, directory, manifest, kernel, CASE, kernel["hdim_q"])
            executed = (hip.executed() - before) / 1e6
            if checks == "all":
                rates.checked = max(rates.checked, executed / hip.cpu_s)
                continue
            rates.one_core = max(rates.one_core, executed / hip.cpu_s)
            rates.one_core_wall = max(rates.one_core_wall, executed / hip.wall_s)
            run_forward(hip, directory, manifest, kernel, CASE, kernel["hdim_q"])
            rates.all_cores = max(rates.all_cores, executed / hip.cpu_s)
            rates.all_cores_wall = max(rates.all_cores_wall, executed / hip.wall_s)
    return rates


def is_plain_forward(kernel: dict[str, Any]) -> bool:
    """Whether a row of kernels.json is forward attention on equal lengths without mask, bias, softcap and dropout."""
    plain = (kernel["op"], kernel["mode"], kernel["bias"], kernel["padding"]) == ("fmha_fwd", "batch", "none", "seqlen")
    return plain and not (kernel["mask"] or kernel["softcap"] or kernel["dropout"])


def print_family(family: str, wave_size: int, rates: list[Rates]) -> None:
    """The least of a family's kernels."""
    print(
        f"{family}: {min(rate.one_core for rate in rates):.0f} M inst/s (wave{wave_size}) on one core, the slowest "
        f"kernel; target {TARGETS[wave_size]}, prototype {PROTOTYPE[wave_size]}; with all checks "
        f"{min(rate.checked for rate in rates):.0f}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--kernels",
        type=Path,
        nargs="+",
        default=[ROOT / "build" / "kernels"],
        help="directories of <gfx>/kernels.json (default: build/kernels)",
    )
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    emulator = emulator_directory()
    manifests = [path for directory in options.kernels for path in sorted(directory.glob("*/kernels.json"))]
    if emulator is None or not manifests:
        missing = "emulator" if emulator is None else f"*/kernels.json in {', '.join(map(str, options.kernels))}"
        print(f"no {missing}; run ./pixiw run build first", file=sys.stderr)
        return 2
    by_family: dict[str, Path] = {}
    for manifest in manifests:
        if any(map(is_plain_forward, json.loads(manifest.read_text(encoding="utf-8"))["kernels"])):
            by_family.setdefault(load_arch(manifest.parent.name).family, manifest)
    os.environ["FLASH_ATTN_ROCM_EMULATE"] = ",".join(path.parent.name for path in by_family.values())
    hip = TimedHip(emulator / "libamdhip64.so")
    print(f"{CASE.seqlen_q} x {CASE.seqlen_k}, {CASE.heads} heads; million wave instructions a second (inst/s)")
    for device, (family, path) in enumerate(by_family.items()):
        hip.call("hipSetDevice", device)
        document = json.loads(path.read_text(encoding="utf-8"))
        rates = []
        for kernel in filter(is_plain_forward, document["kernels"]):
            rates.append(measure(hip, path.parent, document, kernel, options.repeats))
            print(
                f"{family} {kernel['dtype']} d{kernel['hdim_q']}: {rates[-1].one_core:.0f} M inst/s on one core, "
                f"{rates[-1].checked:.0f} with all checks; {rates[-1].scaling}"
            )
        print_family(family, document["wave_size"], rates)
    return 0


if __name__ == "__main__":
    sys.exit(main())
