"""The AMD GPUs that the Linux kernel driver reports, whether or not torch can use them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from flash_attn_rocm.gpu_identity import KFD_NODES, driver_cards

DEVICE_FILE = Path("/dev/kfd")


@dataclass(frozen=True)
class DriverGpus:
    """What the driver says: gfx names in its order, and whether this user may use them (None: there is no driver)."""

    names: tuple[str, ...]
    usable: bool | None


def find_driver_gpus(topology: Path = KFD_NODES, device: Path = DEVICE_FILE) -> DriverGpus:
    """The GPUs of the driver's topology, and whether its device file may be opened."""
    usable = os.access(device, os.R_OK | os.W_OK) if device.exists() else None
    return DriverGpus(driver_cards(topology), usable)
