"""Render the recipe and build its outputs with rattler-build, each only when something that goes into it changed."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rattler_build
from conda_package_handling import api  # type: ignore[import-untyped]

from flash_attn_rocm.archs import Arch
from scripts.buildlib.build_log import BuildLog
from scripts.buildlib.errors import BuildError
from scripts.buildlib.repack.archive import link_or_copy
from scripts.buildlib.sources import SOURCES, digest_sources

ROOT = Path(__file__).resolve().parent.parent.parent
RECIPE = ROOT / "recipe" / "recipe.yaml"
VARIANTS = ROOT / "recipe" / "variants.yaml"
PLATFORM = "linux-64"

# Settings that say where things are or how fast to build, which change no package.
_UNKEYED = ("build_cache", "ck_root", "max_jobs")


class PackageError(BuildError):
    """A package did not build, or its tests failed."""


@dataclass(frozen=True)
class Places:
    """Directories of a build: rattler-build's own, its logs, the finished packages, and the store of all builds."""

    work: Path
    logs: Path
    dist: Path
    store: Path


@dataclass(frozen=True)
class Output:
    """One package that the recipe makes."""

    name: str
    version: str
    build_string: str
    subdir: str
    stage: str
    rendered: Any

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}-{self.build_string}.conda"

    @property
    def spec(self) -> str:
        """Matches exactly this package."""
        return f"{self.name} =={self.version} {self.build_string}"

    @property
    def requirements(self) -> dict[str, list[str]]:
        """Specs of its build, host, run and test environments."""
        recipe = self.rendered.recipe.to_dict()
        found: dict[str, list[str]] = {}
        for kind, specs in recipe.get("requirements", {}).items():
            found[kind] = [spec if isinstance(spec, str) else json.dumps(spec) for spec in specs]
        for test in recipe.get("tests", ()):
            found.setdefault("test", []).extend(test.get("requirements", {}).get("run", ()))
        return found


def variant_choices(archs: Sequence[Arch], settings: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Combinations of recipe/variants.yaml for these GPUs, with some keys set otherwise."""
    wanted = {arch.gfx for arch in archs}
    for combination in rattler_build.VariantConfig.from_file(VARIANTS).combinations():
        if combination["gfx"] in wanted:
            yield {**combination, **settings}


def render_outputs(choices: Iterable[dict[str, str]], platform: str = PLATFORM) -> list[Output]:
    """The recipe's packages in the order they must be built, each once.

    One combination at a time: rattler-build 0.73 otherwise resolves pin_subpackage of every variant to the last.
    """
    recipe = rattler_build.Stage0Recipe.from_file(RECIPE)
    config = rattler_build.RenderConfig(platform=rattler_build.PlatformConfig(target_platform=platform))
    outputs: dict[str, Output] = {}
    for choice in choices:
        variants = rattler_build.VariantConfig({key: [value] for key, value in choice.items()})
        for rendered in recipe.render(variants, config):
            table = rendered.recipe.to_dict()
            build = table["build"]
            output = Output(
                name=rendered.recipe.package.name,
                version=str(rendered.recipe.package.version),
                build_string=rendered.recipe.build.string,
                subdir="noarch" if build.get("noarch") else platform,
                stage=build["script"]["env"]["FA_STAGE"] if build.get("script") else "selector",
                rendered=rendered,
            )
            outputs.setdefault(output.file_name, output)
    return sorted(outputs.values(), key=lambda output: list(SOURCES).index(output.stage))


def needed_names(outputs: Iterable[Output]) -> set[str]:
    """Names of the packages that the outputs require from channels."""
    outputs = list(outputs)
    own = {output.name for output in outputs}
    specs = [
        spec
        for output in outputs
        for kind, listed in output.requirements.items()
        if kind != "run_constraints"
        for spec in listed
    ]
    return {spec.split()[0] for spec in specs} - own


def output_keys(outputs: Sequence[Output], channel_names: Sequence[str]) -> dict[str, str]:
    """Content key per output: its sources, its variant, the channels' names, and the outputs built before it.

    An output's tests run those before it, so a change of one tests the later ones again. A local channel is named by
    its contents. A channel that is given by URL is not looked into: what changes in it builds no package again.
    """
    keys: dict[str, str] = {}
    for output in outputs:
        variant = {key: value for key, value in output.rendered.variant.items() if key not in _UNKEYED}
        parts = [output.file_name, json.dumps(variant, sort_keys=True), digest_sources(output.stage)]
        parts += [*channel_names, *keys.values()]
        keys[output.file_name] = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return keys


def build_output(
    output: Output, key: str, channels: Sequence[str], places: Places, report: Callable[[str], None]
) -> bool:
    """Put the package into `dist`; True if it had to be built (and passed its tests), False if the store had it.

    Raises:
        PackageError: it did not build, or its tests failed.
    """
    built = places.work / output.subdir / output.file_name
    stored = places.store / key / output.file_name
    fresh = not stored.exists()
    if fresh:
        built.unlink(missing_ok=True)
        _run_rattler_build(output, channels, places, report)
        if not built.exists():
            raise PackageError(f"rattler-build did not make {built}")
        forget_local_channels(built)
        built.chmod(0o644)  # rattler-build leaves it readable by its owner only
        link_or_copy(built, stored)
    # The work directory is a channel of its own while the later outputs are built and tested.
    for target in (built, places.dist / output.subdir / output.file_name):
        if not target.exists() or target.read_bytes() != stored.read_bytes():
            target.unlink(missing_ok=True)
            link_or_copy(stored, target)
    return fresh


def forget_local_channels(package: Path) -> None:
    """Take channels that are directories of this machine out of the package's about.json: rattler-build notes them."""
    with tempfile.TemporaryDirectory(dir=package.parent) as scratch:
        tree = Path(scratch) / "tree"
        api.extract(str(package), str(tree))
        about_file = tree / "info" / "about.json"
        about = json.loads(about_file.read_text(encoding="utf-8"))
        about["channels"] = [url for url in about.get("channels", ()) if not url.startswith("file:")]
        about_file.write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
        api.create(str(tree), None, package.name, out_folder=scratch)
        (Path(scratch) / package.name).replace(package)


def _run_rattler_build(output: Output, channels: Sequence[str], places: Places, report: Callable[[str], None]) -> None:
    log = BuildLog(places.logs / f"{output.name}.log", report)
    # The tests of another platform's package would be run with this one's programs.
    tests = "native" if output.subdir in ("noarch", PLATFORM) else "skip"
    tools = rattler_build.ToolConfiguration(test_strategy=tests, channel_priority="disabled", use_sharded=False)
    try:
        # Without the rendered recipe in the package: it would hold the path of the object cache.
        output.rendered.run_build(
            tool_config=tools,
            output_dir=places.work,
            channels=list(channels),
            no_include_recipe=True,
            progress_callback=log,
        )
    except Exception as error:  # rattler-build's errors have no base class of their own
        raise PackageError(
            f"building {output.name} failed: {error}\n\n{log.first_error()}\n\nAll output: {log.path}"
        ) from error
    finally:
        log.close()


def clear_others(places: Places, outputs: Iterable[Output], subdir: str = "*") -> None:
    """Remove packages of earlier builds, so that no test or installation picks one of those.

    Those for Windows too, unless `subdir` says which: they are made after the others, from the same sources.
    """
    kept = {output.file_name for output in outputs}
    for folder in (places.dist, places.work):
        for path in folder.glob(f"{subdir}/*.conda"):
            if path.name not in kept:
                path.unlink()
    shutil.rmtree(places.work / "bld", ignore_errors=True)
