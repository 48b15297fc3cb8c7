"""Compile kernels: the code objects and kernels.json of each GPU.

Variables: GPU_ARCHS (GPUs, or native), OPT_DIM (head dims), MAX_JOBS (compiles at once), CK_ROOT (another CK tree),
ROCM_PATH (another ROCm). Options win over variables.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from ck.errors import CkError  # noqa: E402
from ck.source import choose_source  # noqa: E402
from flash_attn_rocm.console import make_console  # noqa: E402
from scripts.buildlib.cache_root import cache_root  # noqa: E402
from scripts.buildlib.errors import BadRequestError, BuildError  # noqa: E402
from scripts.buildlib.jobs import available_cpus, available_mib, choose_jobs  # noqa: E402
from scripts.buildlib.kernel_sizes import make_size_table  # noqa: E402
from scripts.buildlib.kernel_tables import find_objdump, make_plan_table, make_report, make_report_table  # noqa: E402
from scripts.buildlib.kernels import KernelRequest, build_kernels, plan_request  # noqa: E402
from scripts.buildlib.launcher import find_launcher  # noqa: E402
from scripts.buildlib.reproducible import check_reproducible, smallest_unit  # noqa: E402
from scripts.buildlib.request import choose_archs, choose_hdims, choose_max_jobs  # noqa: E402
from scripts.buildlib.shards import parse_shard  # noqa: E402
from scripts.buildlib.toolchain import find_toolchain  # noqa: E402

DEFAULT_PROFILE = "ci"
DEFAULT_OUT = ROOT / "build" / "kernels"


def parse_options(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default=DEFAULT_PROFILE, help="row set of ck/variants.toml (default: %(default)s)")
    parser.add_argument("--arch", help="GPUs, separated by ';' or ',' or native (default: GPU_ARCHS, else all)")
    parser.add_argument("--hdim", help="head dims (default: OPT_DIM, else all of the profile)")
    parser.add_argument("--jobs", help="most compiles at once (default: MAX_JOBS, else by cores and memory)")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="where to (default: build/kernels)")
    parser.add_argument("--shard", metavar="I/N", help="compile only part I of N, for `--merge` on another machine")
    parser.add_argument(
        "--merge",
        type=Path,
        nargs="+",
        default=[],
        metavar="DIR",
        help="compile nothing: take the results of all shards from these directories, `cache` below their --out",
    )
    parser.add_argument(
        "--launcher", help="program to put before the compiler, or off (default: sccache where it is configured)"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan with its cost and stop")
    parser.add_argument("--report", action="store_true", help="print registers, spills and sizes of what is built")
    parser.add_argument("--sizes", action="store_true", help="print the bytes of what is built, installed and packed")
    parser.add_argument("--json", action="store_true", help="with --report: as JSON, one object per GPU")
    parser.add_argument(
        "--check-reproducible",
        action="store_true",
        help="compile the smallest kernel twice, from two directories, and compare the code objects",
    )
    return parser.parse_args(arguments)


def run(options: argparse.Namespace, console: Console) -> None:
    """Do what the command line asks for."""
    if options.json and not options.report:
        raise BadRequestError("--json", "given without --report", "with --report, whose form it is")
    request = KernelRequest(
        profile=options.profile,
        archs=choose_archs(options.arch),
        out=options.out.absolute(),
        hdims=choose_hdims(options.hdim),
        max_jobs=choose_max_jobs(options.jobs),
        shard=parse_shard(options.shard) if options.shard else None,
        merge=tuple(path.absolute() for path in options.merge),
    )
    if request.shard and request.merge:
        raise BadRequestError("--merge", "given with --shard", "one of the two: a part is compiled, or all are merged")
    plan = plan_request(request)
    if options.report:
        reports = [make_report(request.out, arch.gfx, find_objdump()) for arch in request.archs]
        if options.json:
            print(json.dumps(reports, indent=1))
        else:
            console.print(make_report_table(reports))
        return
    if options.sizes:
        console.print(make_size_table(request.out, [arch.gfx for arch in request.archs]))
        return
    if options.dry_run:
        units = [unit for group in plan.values() for unit in group]
        jobs, reason = choose_jobs(units, available_cpus(), available_mib(), request.max_jobs)
        console.print(make_plan_table(plan, jobs))
        console.print(f"{jobs} compiles at once, limited by {reason}")
        return
    if options.check_reproducible:
        toolchain, ck = find_toolchain([arch.gfx for arch in request.archs]), choose_source(cache_root())
        for arch in plan:
            unit = smallest_unit(plan[arch])
            digest = check_reproducible(arch, unit, toolchain, ck)
            console.print(f"{unit.specs[0].name}: both compiles gave sha256 {digest}", soft_wrap=True, highlight=False)
        return
    # Only here: who does not compile needs no launcher.
    build = build_kernels(replace(request, launcher=find_launcher(options.launcher)), console)
    console.print(build.summary())
    for path in build.manifests.values():
        console.print(str(path), soft_wrap=True, highlight=False)


def main(arguments: list[str]) -> int:
    try:
        run(parse_options(arguments), make_console())
    except (BuildError, CkError) as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
