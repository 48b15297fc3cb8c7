"""The clock and the power of a GPU at this moment: times mean little without them.

Read from the driver's files on AMD GPUs and from nvidia-smi on NVIDIA ones; nothing is ever set.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import torch

PCI_DEVICES = Path("/sys/bus/pci/devices")
_NVIDIA_FIELDS = "clocks.sm,clocks.max.sm,power.draw,power.limit"


@dataclass(frozen=True)
class State:
    """Megahertz and watts, None where they cannot be read; `note` is the performance level that is set."""

    clock_mhz: float | None = None
    clock_max_mhz: float | None = None
    power_w: float | None = None
    power_cap_w: float | None = None
    note: str | None = None


def _number(text: str | None, scale: float) -> float | None:
    try:
        return float(text or "") * scale
    except ValueError:  # absent, or "[N/A]"
        return None


def _text(directory: Path, *names: str) -> str | None:
    for name in names:
        try:
            return (directory / name).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
    return None


def amd_state(address: str, devices: Path = PCI_DEVICES) -> State:
    """State of the AMD GPU at a PCI address, from the files of its hwmon (Linux)."""
    device = devices / address
    sensors = next(iter(sorted(device.glob("hwmon/hwmon*"))), device)
    levels = (_text(device, "pp_dpm_sclk") or "").splitlines()  # "2: 2400Mhz *", the last is the highest
    highest = levels[-1].split(":")[-1].lower().replace("mhz", "").replace("*", "") if levels else None
    return State(
        _number(_text(sensors, "freq1_input"), 1e-6),
        _number(highest, 1.0),
        _number(_text(sensors, "power1_average", "power1_input"), 1e-6),
        _number(_text(sensors, "power1_cap"), 1e-6),
        _text(device, "power_dpm_force_performance_level"),
    )


def nvidia_state(address: str) -> State:
    """State of the NVIDIA GPU at a PCI address."""
    command = ["nvidia-smi", f"--query-gpu={_NVIDIA_FIELDS}", "--format=csv,noheader,nounits", f"--id={address}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return State()
    values = [_number(part, 1.0) for part in done.stdout.strip().split(",")]
    return State(values[0], values[1], values[2], values[3]) if len(values) == 4 else State()


def read_state(device: torch.device) -> State:
    """State of a torch device; empty for the CPU and where nothing can be read."""
    if device.type != "cuda":
        return State()
    properties = torch.cuda.get_device_properties(device)
    domain, bus, slot = (getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device"))
    if domain is None or bus is None or slot is None:
        return State()
    address = f"{domain:04x}:{bus:02x}:{slot:02x}.0"
    return amd_state(address) if torch.version.hip is not None else nvidia_state(address)
