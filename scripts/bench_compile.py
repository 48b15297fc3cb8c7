"""Measure what a kernel costs to compile: our way (many of one tile in a device-only file) against upstream's way.

Upstream's way is one kernel per file, compiled for host and device, with CK's fmha_fwd.hpp included and the kernel
launched from the host part. Both are compiled here, in turn, with the same compiler and optimisation flags, without
upstream's -mllvm flags (which only make it slower), and CPU seconds are compared.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from ck.errors import CkError, RequestError  # noqa: E402
from ck.plan import KernelSpec, Unit, plan_units  # noqa: E402
from ck.render import render_launcher, render_unit  # noqa: E402
from ck.source import CkSource, choose_source  # noqa: E402
from flash_attn_rocm.archs import Arch  # noqa: E402
from flash_attn_rocm.console import make_console  # noqa: E402
from scripts.buildlib.cache_root import cache_root  # noqa: E402
from scripts.buildlib.commands import run_command  # noqa: E402
from scripts.buildlib.compile_flags import device_flags, path_flags  # noqa: E402
from scripts.buildlib.errors import BuildError  # noqa: E402
from scripts.buildlib.kernels import DEVICE_DIR, find_includes  # noqa: E402
from scripts.buildlib.request import choose_archs  # noqa: E402
from scripts.buildlib.toolchain import find_toolchain  # noqa: E402
from scripts.buildlib.toolchains.layout import Toolchain  # noqa: E402

ALLOWED_RATIO = 1 / 3
_DEVICE_ONLY = ("--cuda-device-only", "--no-gpu-bundle-output")


@dataclass(frozen=True)
class Bench:
    """What both ways are compiled with."""

    arch: Arch
    toolchain: Toolchain
    ck: CkSource
    scratch: Path

    def compile_ours(self, unit: Unit) -> float:
        """CPU seconds of a translation unit, device only."""
        includes = find_includes(self.arch, self.ck, self.scratch)
        return self._compile(unit.name, render_unit(unit), includes, [device_flags(self.arch)])

    def compile_theirs(self, spec: KernelSpec) -> float:
        """CPU seconds of one kernel in a file of its own: the device pass and the host pass.

        The passes run one by one: joining their outputs takes no time, but a tool that not every LLVM package has.
        """
        # csrc is for "device/fmha_fwd.hpp": the plain name is CK's own header here.
        more = {"csrc": DEVICE_DIR.parent, "example": self.ck.root / "example/ck_tile/01_fmha"}
        includes = {**more, **find_includes(self.arch, self.ck, self.scratch)}
        flags = device_flags(self.arch)
        host = [flag for flag in flags if flag not in _DEVICE_ONLY] + ["--cuda-host-only", "-c"]
        return self._compile(spec.name, render_launcher(spec), includes, [flags, host])

    def _compile(self, name: str, text: str, includes: dict[str, Path], passes: list[list[str]]) -> float:
        source = self.scratch / f"{name}.hip"
        source.write_text(text, encoding="utf-8")
        paths = path_flags(self.toolchain, includes, self.scratch)
        before = os.times()
        for flags in passes:
            run_command(name, [self.toolchain.clangxx, *flags, *paths, source, "-o", source.with_suffix(".o")])
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system


def choose_unit(arch: Arch, name: str | None) -> Unit:
    """The translation unit to measure: the named one, else the largest forward one of profile inference."""
    units = {unit.name: unit for unit in plan_units(arch, "inference") if unit.specs[0].variant.op == "fmha_fwd"}
    if name is not None and name not in units:
        raise RequestError("unit", name, units)
    return units[name] if name is not None else max(units.values(), key=lambda unit: len(unit.specs))


def choose_specs(unit: Unit, count: int) -> list[KernelSpec]:
    """`count` kernels spread evenly over the unit's."""
    last = len(unit.specs) - 1
    return [unit.specs[round(index * last / max(1, count - 1))] for index in range(min(count, len(unit.specs)))]


def make_table(unit: Unit, ours: float, theirs: dict[str, float], ratio: float) -> Table:
    """Both ways and the ratio."""
    table = Table(title="CPU seconds to compile", title_justify="left")
    for heading, justify in (("what", "left"), ("kernels", "right"), ("CPU-s", "right"), ("CPU-s a kernel", "right")):
        table.add_column(heading, justify="right" if justify == "right" else "left", overflow="fold")
    count = len(unit.specs)
    table.add_row(f"ours: {unit.name}", str(count), f"{ours:.1f}", f"{ours / count:.1f}")
    for name, seconds in theirs.items():
        table.add_row(f"upstream's way: {name}", "1", f"{seconds:.1f}", f"{seconds:.1f}")
    table.caption = f"ratio per kernel {ratio:.2f}, allowed {ALLOWED_RATIO:.2f}"
    return table


def run(options: argparse.Namespace, console: Console) -> int:
    """Measure, print, and return 1 when the ratio is over what is allowed."""
    arch = choose_archs(options.arch)[0]
    toolchain = find_toolchain([arch.gfx])
    ck = choose_source(cache_root())
    unit = choose_unit(arch, options.unit)
    console.print(f"{toolchain.clang_version}, {ck.label}, {arch.gfx}")
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(arch, toolchain, ck, Path(scratch))
        ours = bench.compile_ours(unit)
        theirs = {spec.name: bench.compile_theirs(spec) for spec in choose_specs(unit, options.kernels)}
    ratio = ours / len(unit.specs) / (sum(theirs.values()) / len(theirs))
    console.print(make_table(unit, ours, theirs, ratio))
    return int(ratio > ALLOWED_RATIO)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", help="GPU (default: GPU_ARCHS, else the first known)")
    parser.add_argument("--unit", help="translation unit, as `kernels --dry-run` names it (default: the largest)")
    parser.add_argument(
        "--kernels", type=int, default=3, help="kernels to compile upstream's way (default: %(default)s)"
    )
    try:
        return run(parser.parse_args(arguments), make_console())
    except (BuildError, CkError) as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
