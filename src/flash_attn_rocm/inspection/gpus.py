"""The AMD GPUs that the Linux kernel driver reports, whether or not torch can use them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from flash_attn_rocm.gpu_identity import KFD_NODES, gfx_name

DEVICE_FILE = Path("/dev/kfd")


@dataclass(frozen=True)
class DriverGpus:
    """What the driver says: gfx names in its order, and whether this user may use them (None: there is no driver)."""

    names: tuple[str, ...]
    usable: bool | None


def _properties(node: Path) -> dict[str, str]:
    try:
        text = (node / "properties").read_text(encoding="ascii", errors="replace")
    except OSError:  # the driver hides nodes from users who may not use them
        return {}
    return dict(line.split(maxsplit=1) for line in text.splitlines() if " " in line.strip())


def find_driver_gpus(topology: Path = KFD_NODES, device: Path = DEVICE_FILE) -> DriverGpus:
    """Read the driver's topology; nodes without SIMDs are CPUs."""
    nodes = sorted(topology.glob("[0-9]*"), key=lambda node: int(node.name)) if topology.is_dir() else []
    versions = []
    for node in nodes:
        properties = _properties(node)
        if int(properties.get("simd_count", "0")) > 0:
            versions.append(int(properties.get("gfx_target_version", "0")))
    usable = os.access(device, os.R_OK | os.W_OK) if device.exists() else None
    names = [gfx_name(version // 10000, version // 100 % 100, version % 100) for version in versions if version]
    return DriverGpus(tuple(names), usable)
