"""Reads isa/<family>.toml and semantics/functions.toml; used by gen.py, gen_devices.py and the tests."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

ROW_SECTIONS = ("vector", "compare", "scalar", "special")
SECTIONS = {"family", "machine", "vector", "compare", "scalar", "special", "waits", "ignore", "trap"}
MACHINE_KEYS = {
    "wave_size",
    "accumulators",
    "workgroup_ids_in_sgprs",
    "scratch_wave_offset",
    "cmpx_writes_mask",
    "target_features",
    "test_kernels",
}
ROW_KEYS = {
    "vector": {"fn", "dst", "src", "vcc", "scalar", "mix", "packed", "immediate", "needs"},
    "compare": {"fn", "src", "needs"},
    "scalar": {"fn", "dst", "src", "scc", "needs"},
    "special": {"fn", "types", "returns", "args", "flow", "exec_dst", "uses", "needs"},
}
FUNCTION_KEYS = {"class", "counts", "returns"}
# C++ enumerators of machine/instruction_traits.hpp.
CLASSES = {
    name: f"InstructionClass::k{name.capitalize()}"
    for name in ("matrix", "valu", "lds", "global", "scratch", "scalar", "branch", "wait", "hint")
}
EVENTS = {"vmem_load": "kVmemLoad", "vmem_store": "kVmemStore", "lds": "kLds", "smem": "kSmem"}
FLOWS = {"next": "kNext", "branch": "kBranch", "jump": "kJump", "end": "kEnd", "indirect": "kIndirect"}


def load_toml(path: Path) -> dict[str, Any]:
    """The document. Ends the program with the file and line of an error."""
    try:
        return tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise SystemExit(f"{path}: {error}") from error


def load_functions(path: Path) -> dict[str, Any]:
    """What semantics/functions.toml says of each function, checked."""
    functions = load_toml(path)
    for name, row in functions.items():
        if unknown := set(row) - FUNCTION_KEYS:
            raise SystemExit(f"{path}: {name}: unknown keys {sorted(unknown)}; known: {sorted(FUNCTION_KEYS)}")
        for key, known in (("class", CLASSES), ("counts", EVENTS)):
            if key in row and row[key] not in known:
                raise SystemExit(f"{path}: {name}: {key} is {row[key]!r}; known: {sorted(known)}")
    return functions


def over_base(path: Path, table: dict[str, Any]) -> dict[str, Any]:
    """What a table over another stands for: rows of the base but those that it renames, drops or has itself."""
    base = load_table(path.with_name(f"{table.pop('base')}.toml"))
    renamed, absent = table.pop("renamed", {}), table.pop("absent", [])
    known = {name for section in ROW_SECTIONS for name in base[section]}
    if unknown := {*renamed.values(), *absent} - known:
        raise SystemExit(f"{path}: renamed or absent rows {sorted(unknown)} are not in the base table")
    gone = {*renamed.values(), *absent}
    for section in ROW_SECTIONS:
        rows = {name: row for name, row in base[section].items() if name not in gone}
        rows |= {name: base[section][old] for name, old in renamed.items() if old in base[section]}
        table[section] = rows | table.get(section, {})
    return {**base, **table}


def load_table(path: Path) -> dict[str, Any]:
    """The table of a family, checked; the fuzz kernels of tests/isa are made from the same."""
    table = load_toml(path)
    if "base" in table:
        table = over_base(path, table)
    if unknown := set(table) - SECTIONS:
        raise SystemExit(f"{path}: unknown sections {sorted(unknown)}; known: {sorted(SECTIONS)}")
    if set(table["machine"]) != MACHINE_KEYS:
        raise SystemExit(f"{path}: [machine] has {sorted(table['machine'])}, expected {sorted(MACHINE_KEYS)}")
    for section, keys in ROW_KEYS.items():
        for name, row in table[section].items():
            if unknown := set(row) - keys:
                raise SystemExit(f"{path}: [{section}] {name}: unknown keys {sorted(unknown)}; known: {sorted(keys)}")
    return table
