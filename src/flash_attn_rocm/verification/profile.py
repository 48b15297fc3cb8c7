"""Instructions that kernels executed on the emulated GPU, by class: counts, not time."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterable

from rich.table import Table

from flash_attn_rocm import environment, paths

# Executed wave instructions by kernel and class; "launches" is one of the keys.
Profile = dict[str, dict[str, int]]


def read_profile() -> Profile | None:
    """What this process has executed so far; None where no emulated GPU is used."""
    path = paths.hip_library_path()
    if path is None or not environment.emulated_gpus():
        return None
    library = ctypes.CDLL(str(path))  # the same library that runs the kernels: it is loaded once per process
    if not hasattr(library, "flash_attn_rocm_emulator_profile"):
        return None  # FLASH_ATTN_ROCM_HIP_LIBRARY names another runtime
    library.flash_attn_rocm_emulator_profile.restype = ctypes.c_char_p
    rows = json.loads(library.flash_attn_rocm_emulator_profile())["kernels"]
    return {row["name"]: {"launches": row["launches"], **row["executed"]} for row in rows}


def add_profiles(profiles: Iterable[Profile | None]) -> Profile:
    """The sum over several processes."""
    total: Profile = {}
    for profile in profiles:
        for name, counts in (profile or {}).items():
            row = total.setdefault(name, {})
            for key, count in counts.items():
                row[key] = row.get(key, 0) + count
    return dict(sorted(total.items()))


def profile_table(profile: Profile) -> Table:
    """One row per kernel."""
    columns = list(next(iter(profile.values()), {}))
    table = Table(title="executed wave instructions (counts, not time)")
    table.add_column("kernel", no_wrap=True)
    for name in (*columns, "all"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, counts in profile.items():
        total = sum(count for key, count in counts.items() if key != "launches")
        table.add_row(name, *(f"{counts[column]:,}" for column in columns), f"{total:,}")
    return table
