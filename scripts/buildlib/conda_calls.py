"""Index, solve and install with py-rattler, each call in a process of its own.

py-rattler 0.28.0 crashes now and then while the interpreter shuts down (its threads outlive it). The child therefore
leaves with os._exit as soon as its answer is written, and the caller's own shutdown stays clean.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts.buildlib.errors import BuildError

ROOT = Path(__file__).resolve().parent.parent.parent
_ANSWER = "\x1eanswer:"


class CondaError(BuildError):
    """Indexing, solving or installing failed."""


def index_channel(channel: Path) -> None:
    """Write the repodata of a channel directory.

    Every package is read again: the indexer knows packages by their file names, and two builds of one package share it,
    so that an installation would take the older one from the package cache.
    """
    _call("index", channel=str(channel))


def solve(
    channels: Sequence[str],
    specs: Sequence[str],
    platform: str = "linux-64",
    environment: Mapping[str, str] | None = None,
) -> list[dict[str, str]]:
    """The packages an installation of `specs` would hold: name, version, build, channel, subdir.

    `environment` may hold CONDA_OVERRIDE_* variables, which replace what is detected on this machine.

    Raises:
        CondaError: no combination of packages satisfies the specs.
    """
    answer: list[dict[str, str]] = _call(
        "solve", environment, channels=list(channels), specs=list(specs), platform=platform
    )
    return answer


def install(
    channels: Sequence[str],
    specs: Sequence[str],
    prefix: Path,
    package_cache: Path,
    environment: Mapping[str, str] | None = None,
) -> list[dict[str, str]]:
    """Install `specs` into `prefix`, which is changed to hold exactly what they need; `environment` as in `solve`.

    Raises:
        CondaError: they cannot be solved or installed.
    """
    request = {"channels": list(channels), "specs": list(specs)}
    answer: list[dict[str, str]] = _call(
        "install", environment, **request, prefix=str(prefix), package_cache=str(package_cache)
    )
    return answer


def _call(action: str, environment: Mapping[str, str] | None = None, **request: Any) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", __name__, action],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        check=False,
    )
    output, found, answer = done.stdout.partition(_ANSWER)
    if not found:
        raise CondaError(f"py-rattler's {action} ended with code {done.returncode}:\n{output}{done.stderr}".rstrip())
    reply = json.loads(answer)
    if "error" in reply:
        raise CondaError(f"{action} failed: {reply['error']}")
    return reply["result"]


async def _run(action: str, request: dict[str, Any]) -> Any:
    import rattler
    from rattler.index import index_fs

    if action == "index":
        await index_fs(Path(request["channel"]), write_zst=False, write_shards=False, force=True)
        return None
    overrides = rattler.VirtualPackageOverrides.from_env()
    platform = request.get("platform", "linux-64")
    records = await rattler.solve(
        sources=[rattler.Channel(channel) for channel in request["channels"]],
        # Not strict: accepts every form that the conda program does, such as name=*=build*.
        specs=[rattler.MatchSpec(spec, strict=False) for spec in request["specs"]],
        gateway=rattler.Gateway(),
        platforms=[platform, "noarch"],
        virtual_packages=rattler.VirtualPackage.detect(overrides),
        channel_priority=rattler.ChannelPriority.Disabled,
    )
    if action == "install":
        await rattler.install(
            records=records,
            target_prefix=request["prefix"],
            cache_dir=Path(request["package_cache"]),
            show_progress=False,
        )
    return [
        {
            "name": record.name.normalized,
            "version": str(record.version),
            "build": str(record.build),
            "channel": str(record.channel),
            "subdir": str(record.subdir),
        }
        for record in records
    ]


def main() -> None:
    request = json.load(sys.stdin)
    try:
        reply = {"result": asyncio.run(_run(sys.argv[1], request))}
    except Exception as error:  # whatever py-rattler raises is the caller's to show
        reply = {"error": str(error)}
    sys.stdout.write(_ANSWER + json.dumps(reply))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
