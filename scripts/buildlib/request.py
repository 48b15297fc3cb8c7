"""What the user asked to build: GPUs, head dims and job limit, from options or the variables people know."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from flash_attn_rocm.archs import Arch, load_archs
from flash_attn_rocm.gpu_identity import KFD_NODES, driver_gpus
from scripts.buildlib.errors import BadRequestError


def split_list(text: str) -> list[str]:
    """Items of a list separated by ';', ',' or spaces."""
    return [item for item in re.split(r"[;,\s]+", text) if item]


def choose_archs(option: str | None, env: Mapping[str, str] = os.environ, nodes: Path = KFD_NODES) -> tuple[Arch, ...]:
    """The GPUs to build for: the option, else GPU_ARCHS, else every known one.

    `native` means this machine's, `all` every known one too.

    Raises:
        BadRequestError: an unknown GPU, or `native` without an AMD GPU.
    """
    text = option if option is not None else env.get("GPU_ARCHS", "")
    known = load_archs()
    names = [gpu for name in split_list(text) for gpu in (known if name == "all" else [name])]
    if "native" in names:
        gpus = driver_gpus(nodes)
        if not gpus:
            hint = "`native` means the GPU in this machine, and the kernel driver (KFD) reports none here."
            raise BadRequestError("GPU_ARCHS", text, known, hint)
        names = [gpu for name in names for gpu in (gpus if name == "native" else [name])]
    for name in names:
        if name not in known:
            raise BadRequestError("GPU_ARCHS", name, ["native", "all", *known], "Separate several with ';' or ','.")
    return tuple(known[name] for name in dict.fromkeys(names or known))


def choose_hdims(option: str | None, env: Mapping[str, str] = os.environ) -> tuple[int, ...] | None:
    """The head dims to build: the option, else OPT_DIM, else None (all of the profile).

    Raises:
        BadRequestError: not a list of numbers.
    """
    text = option if option is not None else env.get("OPT_DIM", "")
    items = split_list(text)
    if bad := [item for item in items if not item.isdigit()]:
        raise BadRequestError("OPT_DIM", bad[0], "head dims such as 64;128")
    return tuple(sorted({int(item) for item in items})) or None


def choose_max_jobs(option: str | None, env: Mapping[str, str] = os.environ) -> int | None:
    """The most compiles at once: the option, else MAX_JOBS, else None (no limit besides memory and cores).

    Raises:
        BadRequestError: not a positive number.
    """
    text = option if option is not None else env.get("MAX_JOBS", "")
    if not text:
        return None
    if not text.isdigit() or int(text) < 1:
        raise BadRequestError("MAX_JOBS", text, "a whole number from 1 up")
    return int(text)
