"""Install the built packages into a fresh conda environment, or leave it alone when it already holds exactly them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.buildlib.conda_calls import index_channel, install, solve


def install_packages(
    dist: Path,
    channels: Sequence[str],
    specs: Sequence[str],
    keys: Sequence[str],
    prefix: Path,
    package_cache: Path,
    environment: Mapping[str, str],
) -> bool:
    """Index `dist`, then install `specs` from it and from `channels`; False if the environment was already so.

    `keys` are the content keys of the packages: two builds of one package can share name, version and build string.
    `environment` holds CONDA_OVERRIDE_* variables for the solver.

    Raises:
        CondaError: the specs cannot be solved or installed.
    """
    index_channel(dist)
    sources = [f"file://{dist}", *channels]
    wanted = {"packages": solve(sources, specs, environment=environment), "keys": list(keys)}
    # Beside the environment: everything inside conda-meta must be a package's record.
    record = prefix.with_name(f"{prefix.name}.json")
    if (
        record.exists()
        and (prefix / "conda-meta").is_dir()
        and json.loads(record.read_text(encoding="utf-8")) == wanted
    ):
        return False
    # From nothing every time: what is verified is what a person gets who installs into a new environment.
    record.unlink(missing_ok=True)
    shutil.rmtree(prefix, ignore_errors=True)
    install(sources, specs, prefix, package_cache, environment)
    record.write_text(json.dumps(wanted), encoding="utf-8")
    return True
