"""Conda packages from Python distributions installed in the running environment, by their RECORD."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from scripts.buildlib.repack.archive import Repack

PYTHON_XY = f"{sys.version_info.major}.{sys.version_info.minor}"
PYTHON_SPEC = f"python {PYTHON_XY}.*"
SITE_PACKAGES = f"lib/python{PYTHON_XY}/site-packages"

# Where conda-forge's name is not the package index's name.
_CONDA_NAMES = {"torch": "pytorch", "msgpack": "msgpack-python", "typing-extensions": "typing_extensions"}
_INDEX_NAMES = {conda: index for index, conda in _CONDA_NAMES.items()}

_HASH_BASED_UNCHECKED = (1).to_bytes(4, "little")  # flags of a .pyc (PEP 552): valid whatever the source's time stamp


# What conda-forge's package requires beyond the wheel: without numpy, torch prints a warning when it is imported.
_EXTRA_DEPENDS = {"pytorch": ("numpy",)}


def conda_name(index_name: str) -> str:
    """conda-forge's name of a distribution."""
    name = canonicalize_name(index_name)
    return _CONDA_NAMES.get(name, name)


def find_distribution(package: str) -> importlib.metadata.Distribution | None:
    """The installed distribution that stands for a conda package, or None."""
    try:
        return importlib.metadata.distribution(_INDEX_NAMES.get(package, package))
    except importlib.metadata.PackageNotFoundError:
        return None


def required_names(distribution: importlib.metadata.Distribution) -> Iterator[Requirement]:
    """Requirements that apply here, without extras."""
    for text in distribution.requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement


def _conda_version(distribution: importlib.metadata.Distribution) -> str:
    """The public part of the version: conda-forge has no local parts such as `+cpu`."""
    return Version(distribution.version).public


def _depends(distribution: importlib.metadata.Distribution) -> tuple[str, ...]:
    specs = {PYTHON_SPEC}
    for requirement in required_names(distribution):
        # str() sorts the clauses of a specifier, so the key does not depend on how the wheel's author wrote them.
        specs.add(f"{conda_name(requirement.name)} {requirement.specifier}".strip())
    specs.update(_EXTRA_DEPENDS.get(conda_name(distribution.metadata["Name"]), ()))
    return tuple(sorted(specs))


def _cached_bytecode(source: Path) -> Path:
    return Path(importlib.util.cache_from_source(str(source)))


def convert_bytecode(source: Path, target: Path) -> bool:
    """Write the source's existing bytecode so that it stays valid in any prefix; False where there is none.

    Packing changes time stamps, and bytecode tied to them would be compiled again in every fresh test environment:
    ten seconds for torch. The code stays as pip compiled it; only the 16-byte header changes (PEP 552).
    """
    cached = _cached_bytecode(source)
    if not cached.is_file():
        return False
    data = cached.read_bytes()
    if data[:4] != importlib.util.MAGIC_NUMBER:
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    header = data[:4] + _HASH_BASED_UNCHECKED + importlib.util.source_hash(source.read_bytes())
    target.write_bytes(header + data[16:])
    return True


def _stage(distribution: importlib.metadata.Distribution, staging: Path) -> Iterable[tuple[Path, str]]:
    base = Path(str(distribution.locate_file("")))
    for record in distribution.files or ():
        source = base / record
        # Scripts carry the environment's own interpreter in their first line; nothing here needs them.
        if ".." in record.parts or record.suffix == ".pyc" or not source.is_file():
            continue
        path = f"{SITE_PACKAGES}/{record.as_posix()}"
        yield source, path
        if record.suffix == ".py":
            bytecode = f"{Path(path).parent.as_posix()}/__pycache__/{_cached_bytecode(source).name}"
            if convert_bytecode(source, staging / bytecode):
                yield staging / bytecode, bytecode


def plan_distribution(distribution: importlib.metadata.Distribution) -> Repack:
    """Repack one installed distribution."""
    return Repack(
        name=conda_name(distribution.metadata["Name"]),
        version=_conda_version(distribution),
        identity=f"{sys.implementation.cache_tag}\n{distribution.read_text('RECORD') or ''}",
        depends=_depends(distribution),
        stage=lambda staging: _stage(distribution, staging),
    )


def plan_closure(packages: Iterable[str]) -> list[Repack]:
    """Repack the distributions of these conda packages and everything they require.

    Raises:
        LookupError: one is not installed in the running environment.
    """
    pending = [(name, "the recipe") for name in packages]
    plans: dict[str, Repack] = {}
    while pending:
        name, wanted_by = pending.pop()
        if name in plans:
            continue
        distribution = find_distribution(name)
        if distribution is None:
            raise LookupError(
                f"{wanted_by} needs {name}, which is not installed in this Python ({sys.prefix}); "
                "remove .pixiw and run ./pixiw run build again, or pass --channel conda-forge to use reachable channels"
            )
        plans[name] = plan_distribution(distribution)
        pending += [(conda_name(requirement.name), name) for requirement in required_names(distribution)]
        pending += [(extra, name) for extra in _EXTRA_DEPENDS.get(name, ())]
    return sorted(plans.values(), key=lambda plan: plan.name)
