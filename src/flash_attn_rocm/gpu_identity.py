"""Which GPUs the machine really has: ROCm's HSA_OVERRIDE_GFX_VERSION makes them pose as others."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from flash_attn_rocm.environment import GFX_OVERRIDE

KFD_NODES = Path("/sys/class/kfd/kfd/topology/nodes")


def gfx_name(major: int, minor: int, stepping: int) -> str:
    """The name of a version: 9, 0, 10 is gfx90a."""
    return f"gfx{major}{minor:x}{stepping:x}"


def _target_version(node: Path) -> int:
    """A node's gfx_target_version; 0 for a CPU, and for a node that the driver hides from users who may not use it."""
    try:
        text = (node / "properties").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    number = re.search(r"^gfx_target_version (\d+)$", text, flags=re.MULTILINE)
    return int(number.group(1)) if number else 0


def driver_cards(nodes: Path = KFD_NODES) -> tuple[str, ...]:
    """gfx name of each GPU of this machine in the kernel driver's order, which no variable of ROCm changes.

    Empty without the driver.
    """
    numbered = [node for node in nodes.glob("*") if node.name.isdecimal()] if nodes.is_dir() else []
    versions = [_target_version(node) for node in sorted(numbered, key=lambda node: int(node.name))]
    return tuple(gfx_name(version // 10000, version // 100 % 100, version % 100) for version in versions if version)


def driver_gpus(nodes: Path = KFD_NODES) -> tuple[str, ...]:
    """The same, each name once."""
    return tuple(dict.fromkeys(driver_cards(nodes)))


@dataclass(frozen=True)
class Override:
    """What HSA_OVERRIDE_GFX_VERSION does here, and what to do instead; harmless where the card poses as itself."""

    problem: str
    fix: str
    harmless: bool = False


def find_override(
    packaged: Collection[str], variables: Mapping[str, str] = os.environ, nodes: Path = KFD_NODES
) -> Override | None:
    """HSA_OVERRIDE_GFX_VERSION, where it is set; `packaged` are the GPUs that this version has kernel packages for."""
    value = variables.get(GFX_OVERRIDE, "")
    if not value:
        return None
    numbers = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", value)
    posed = gfx_name(*map(int, numbers.groups())) if numbers else "another"
    real = driver_gpus(nodes)
    if real == (posed,):
        return Override(f"{GFX_OVERRIDE}={value} is set and not needed", f"the GPU is a {posed}", harmless=True)
    told = f", but the driver says: {', '.join(real)}" if real else ""
    names = [gfx for gfx in real if gfx in packaged]
    lacking = [gfx for gfx in real if gfx not in packaged]
    advice = f"unset it and install flash-attn-rocm-kernels-{names[0]}" if names else "unset it"
    if not real:
        advice += ", and install the kernels of the card itself"
    if lacking:
        advice += f"; this version has no kernels for {', '.join(lacking)}: FLASH_ATTN_ROCM_BACKEND=sdpa runs there"
    problem = f"{GFX_OVERRIDE}={value} makes every GPU pose as {posed}{told}. Its kernels are not made for the card"
    return Override(problem, advice)


def override_note(packaged: Collection[str], variables: Mapping[str, str] = os.environ, nodes: Path = KFD_NODES) -> str:
    """The same in one text, for errors; empty where the variable is not set."""
    found = find_override(packaged, variables, nodes)
    return f"{found.problem}: {found.fix}" if found else ""
