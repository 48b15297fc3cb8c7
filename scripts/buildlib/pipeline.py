"""The stages of `./pixiw run build`, each timed, and the summary at the end."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ck.errors import CkError
from ck.golden import fetch_golden
from ck.source import CkSource, choose_source, hash_tree
from ck.wheel import load_pin
from flash_attn_rocm.archs import Arch, load_archs
from flash_attn_rocm.console import make_console
from flash_attn_rocm.gpu_identity import driver_gpus
from scripts.buildlib import channel as local_channel
from scripts.buildlib import packages as conda_packages
from scripts.buildlib.cache_root import cache_root
from scripts.buildlib.errors import BuildError
from scripts.buildlib.install import install_packages
from scripts.buildlib.kept_kernels import keep_kernels
from scripts.buildlib.kernels import KernelRequest, build_kernels
from scripts.buildlib.launcher import find_launcher
from scripts.buildlib.request import choose_archs, choose_hdims, choose_max_jobs
from scripts.buildlib.sources import hash_all_sources, write_record
from scripts.buildlib.toolchain import Toolchain, find_toolchain
from scripts.buildlib.verify_installed import run_verify, torch_has_hip

ROOT = Path(__file__).resolve().parent.parent.parent
DIST = ROOT / "dist"
ENVIRONMENT = ROOT / "build" / "env"
# What a person downloads besides pytorch to run attention on one GPU: the main package and that GPU's kernels.
SIZE_LIMITS_MB = {"smoke": 5.0, "ci": 5.0, "inference": 25.0, "full": 25.0}
# They hold what the tests need, on most GPUs next to nothing.
TEST_PROFILES = ("smoke", "ci")


class StageError(BuildError):
    """A stage failed; names it."""

    def __init__(self, stage: str, error: BuildError | CkError) -> None:
        self.exit_code = error.exit_code
        super().__init__(f"stage {stage}: {error}")


@dataclass
class Pipeline:
    """What the stages hand to those after them."""

    archs: tuple[Arch, ...]
    profile: str
    channels: list[str]
    console: Console
    cache: Path
    toolchain: Toolchain | None = None
    ck: CkSource | None = None
    outputs: list[conda_packages.Output] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)
    sources: dict[str, dict[str, str]] = field(default_factory=dict)
    rows: list[tuple[str, float, str]] = field(default_factory=list)

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[Callable[[str], None]]:
        """Time a stage and show what it is at; its last note is what the summary says."""
        started = time.monotonic()
        notes: list[str] = []
        with self.console.status(name) as status:

            def report(text: str) -> None:
                notes.append(text)
                status.update(f"{name}: {escape(text[:120])}")

            yield report
        self.finish(name, time.monotonic() - started, notes[-1] if notes else "")

    def finish(self, name: str, seconds: float, note: str) -> None:
        """Note that a stage is done."""
        self.rows.append((name, seconds, note))
        self.say(f"{name}: {note} ({seconds:.1f} s)")

    def say(self, text: str) -> None:
        """Print one line as it is."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)


def find_tools(work: Pipeline) -> None:
    """Stage: the compiler."""
    with work.stage("toolchain") as report:
        work.toolchain = find_toolchain([arch.gfx for arch in work.archs])
        report(f"{work.toolchain.clang_version}, HIP {work.toolchain.hip_version} ({work.toolchain.origin})")


def fetch_ck(work: Pipeline) -> None:
    """Stage: Composable Kernel's source, and the golden kernels that the emulated GPU is tested with."""
    with work.stage("ck") as report:
        work.ck = choose_source(work.cache)
        if work.ck.pinned:  # a tree given by hand may have been given because there is no network
            fetch_golden(work.cache)
        report(f"{work.ck.label} ({work.ck.why})")


def compile_kernels(work: Pipeline) -> None:
    """Stage: every code object, into the cache that the recipe's isolated build takes them from."""
    out = ROOT / "build" / "kernels"
    jobs, launcher = choose_max_jobs(None), find_launcher()
    request = KernelRequest(work.profile, work.archs, out, choose_hdims(None), jobs, launcher)
    started = time.monotonic()
    # Without a status line: the compiles have a progress line of their own.
    built = build_kernels(request, work.console, work.toolchain, work.ck)
    work.finish("kernels", time.monotonic() - started, built.summary())
    keep_kernels(out, [arch.gfx for arch in work.archs], work.cache)


def package_settings(work: Pipeline) -> dict[str, str]:
    """What was asked for, as keys of recipe/variants.yaml: rattler-build keeps variables from the build scripts."""
    ck = work.ck
    other_ck = ck is not None and not ck.pinned
    return {
        "profile": work.profile,
        "opt_dim": ";".join(map(str, choose_hdims(None) or ())),
        "ck_root": str(ck.root) if ck and other_ck else "",
        "ck_tree": hash_tree(ck.root, load_pin()) if ck and other_ck else "",
        "build_cache": str(work.cache),
        "max_jobs": str(choose_max_jobs(None) or ""),
    }


def make_local_channel(work: Pipeline) -> None:
    """Stage: the packages that the recipe's outputs need."""
    assert work.toolchain
    with work.stage("channel") as report:
        choices = conda_packages.variant_choices(work.archs, package_settings(work))
        work.outputs = conda_packages.render_outputs(choices)
        if work.channels:
            plans = local_channel.plan_compiler_channel(work.toolchain)
        else:
            plans = local_channel.plan_channel(conda_packages.needed_names(work.outputs), work.toolchain)
        directory = local_channel.make_channel(plans, work.cache / "conda", report)
        work.channels.insert(0, f"file://{directory}")
        report(f"{len(plans)} packages repacked in {directory}")


def build_packages(work: Pipeline) -> None:
    """Stage: every output of the recipe that changed."""
    with work.stage("packages") as report:
        places = conda_packages.Places(
            ROOT / "build" / "conda", ROOT / "build" / "logs", DIST, work.cache / "conda" / "outputs"
        )
        conda_packages.clear_others(places, work.outputs)
        work.sources = hash_all_sources()  # now: what is changed during the build may not have got into it
        # A local channel's directory is named by its contents: where the cache is does not matter.
        names = [channel.rsplit("/", 1)[-1] if channel.startswith("file:") else channel for channel in work.channels]
        work.keys = conda_packages.output_keys(work.outputs, names)
        built = []
        for output in work.outputs:
            started = time.monotonic()
            report(output.name)
            key = work.keys[output.file_name]
            if conda_packages.build_output(output, key, work.channels, places, report):
                built.append(output.name)
                seconds = time.monotonic() - started
                work.say(f"  {output.name} {output.version} built and tested ({seconds:.1f} s)")
        report(f"{len(built)} built, {len(work.outputs) - len(built)} unchanged")


def specs_to_install(outputs: Sequence[conda_packages.Output], chosen: Arch) -> list[str]:
    """Exactly the packages of this build: of the selectors, which exclude each other, that of the chosen GPU."""
    return [
        output.spec
        for output in outputs
        if output.stage != "selector" or output.build_string.startswith(f"{chosen.gfx}_")
    ]


def install_environment(work: Pipeline) -> None:
    """Stage: build/env."""
    native = driver_gpus()
    # Built for another GPU than the machine's: the solver is told of that one, since it is about to be emulated.
    chosen = next((arch for arch in work.archs if arch.gfx in native), work.archs[0])
    with work.stage("install") as report:
        changed = install_packages(
            DIST,
            work.channels,
            specs_to_install(work.outputs, chosen),
            list(work.keys.values()),
            ENVIRONMENT,
            Path(os.environ["RATTLER_CACHE_DIR"]) / "pkgs",
            {"CONDA_OVERRIDE_AMDGPU_ARCH": chosen.amdgpu_arch},
        )
        write_record(work.sources)
        report(f"{ENVIRONMENT} {'installed' if changed else 'unchanged'}")


def verify_environment(work: Pipeline) -> None:
    """Stage: the installed program on every emulated GPU, and on the machine's own where its torch can use that."""
    native = [arch.gfx for arch in work.archs if arch.gfx in driver_gpus()]
    reports = ROOT / "build" / "verify"
    for arch in work.archs:
        with work.stage(f"verify {arch.gfx}") as report:
            cases = run_verify(ENVIRONMENT, arch.gfx, reports, emulated=True, say=work.say)
            report(f"{cases} cases passed on the emulated GPU")
    if native and torch_has_hip(ENVIRONMENT):
        with work.stage(f"verify {native[0]}, native") as report:
            cases = run_verify(ENVIRONMENT, native[0], reports, emulated=False, say=work.say)
            report(f"{cases} cases passed on the GPU")
    elif native:
        work.say(f"The machine's {native[0]} was not used: the torch in {ENVIRONMENT} is not built for AMD GPUs.")


def check_sizes(work: Pipeline) -> None:
    """Print the size of every package and fail if the download of main and one GPU's kernels is over the limit.

    Raises:
        BuildError: it is.
    """
    table = Table(title="Packages", title_justify="left")
    table.add_column("file", overflow="fold")
    table.add_column("kB", justify="right")
    sizes = {}
    for output in work.outputs:
        path = DIST / output.subdir / output.file_name
        sizes[output.name] = path.stat().st_size / 1e6
        table.add_row(str(path.relative_to(ROOT)), f"{sizes[output.name] * 1000:.0f}")
    work.console.print(table)
    limit = SIZE_LIMITS_MB[work.profile]
    for arch in work.archs:
        total = sizes["flash-attn-rocm"] + sizes[f"flash-attn-rocm-kernels-{arch.gfx}"]
        if total > limit:
            what = f"main and {work.profile} kernels of {arch.gfx}"
            raise BuildError(f"{what} are {total:.2f} MB; allowed: {limit} MB")


def print_times(work: Pipeline) -> None:
    """The summary table."""
    table = Table(title="Stages", title_justify="left")
    table.add_column("stage")
    table.add_column("seconds", justify="right")
    table.add_column("what")
    for name, seconds, note in work.rows:
        table.add_row(name, f"{seconds:.1f}", escape(note))
    table.add_row("total", f"{sum(seconds for _, seconds, _ in work.rows):.1f}", "")
    work.console.print(table)


def advise(work: Pipeline) -> None:
    """Say to who has a card which build is made for use on it, where this one is not."""
    cards = [gfx for gfx in driver_gpus() if gfx in load_archs()]
    if cards and work.profile in TEST_PROFILES:
        work.say(
            f"The kernels of profile {work.profile} are for tests. For use on this machine's {', '.join(cards)}: "
            "./pixiw run build --arch native --profile inference (full: with dropout and training)"
        )


# In the order of scripts/build.py's --stage.
_STAGES: dict[str, tuple[Callable[[Pipeline], None], ...]] = {
    "toolchain": (find_tools,),
    "ck": (fetch_ck,),
    "kernels": (compile_kernels,),
    "channel": (make_local_channel,),
    "packages": (build_packages, check_sizes),
    "install": (install_environment,),
    "verify": (verify_environment,),
}


def default_channels(prefix: Path) -> list[str]:
    """Channels to use where none is given: conda-forge in a conda environment such as pixi's, else the local one."""
    return ["conda-forge"] if (prefix / "conda-meta").is_dir() else []


def run_pipeline(arch: str | None, profile: str, channels: Sequence[str], stages: Sequence[str]) -> None:
    """Run these stages in order and print the summary.

    Raises:
        StageError: a stage failed.
    """
    cache = cache_root()
    # rattler-build and py-rattler share unpacked packages, and link them from here into every environment.
    os.environ.setdefault("RATTLER_CACHE_DIR", str(cache / "conda" / "rattler"))
    console = make_console()
    work = Pipeline(choose_archs(arch), profile, list(channels) or default_channels(Path(sys.prefix)), console, cache)
    for stage in stages:
        try:
            for step in _STAGES[stage]:
                step(work)
        except (BuildError, CkError) as error:
            raise StageError(stage, error) from error
    print_times(work)
    advise(work)
