"""Which backend runs by default on a GPU: the package's table, or the user's file, which `flash-attn-rocm tune` writes.

The user's file overrides the table per GPU and direction. It is not per shape: a choice is made once per device and
process, which keeps it off the path of a call and constant for torch.compile.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from flash_attn_rocm import environment
from flash_attn_rocm.archs import BACKENDS, load_arch, load_archs
from flash_attn_rocm.errors import PolicyFileError

DIRECTIONS = ("forward", "backward")
SCHEMA = 1
_KEYS: dict[str, type] = {"backend": str, "evidence": str, "measured": list}
_REQUIRED = ("backend", "evidence")


@dataclass(frozen=True)
class Rule:
    """The backend of one direction on one GPU, what speaks for it, and where that stands."""

    backend: str
    evidence: str
    source: str

    def reason(self, gfx: str, direction: str) -> str:
        """The rule in one line."""
        return f"{self.source} for {gfx}: {direction} = {self.backend} ({self.evidence})"


def user_file() -> Path:
    """Where the user's policy is, whether or not there is one."""
    if override := os.environ.get(environment.POLICY):
        return Path(override)
    if sys.platform == "win32":
        root = Path(os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming")
    else:
        root = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return root / "flash-attn-rocm" / "policy.toml"


def table_rule(gfx: str, direction: str) -> Rule:
    """What the package's table says.

    Raises:
        UnsupportedGpuError: no table for this GPU.
    """
    arch = load_arch(gfx)
    backend = {"forward": arch.forward_backend, "backward": arch.backward_backend}[direction]
    return Rule(backend, arch.backend_evidence, "policy")


def rule_for(gfx: str, direction: str) -> Rule:
    """What the user's file says, else what the package's table says.

    Raises:
        UnsupportedGpuError: no table for this GPU.
        PolicyFileError: the user's file is malformed.
    """
    return user_rules().get((load_arch(gfx).gfx, direction)) or table_rule(gfx, direction)


@cache
def user_rules() -> dict[tuple[str, str], Rule]:
    """The user's rules by GPU and direction; the file is read once per process.

    Raises:
        PolicyFileError: the file is malformed.
    """
    path = user_file()
    return {key: Rule(row["backend"], row["evidence"], f"user file {path}") for key, row in read(path).items()}


def read(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The tables of a policy file by GPU and direction, checked; empty where there is no such file.

    Raises:
        PolicyFileError: the file cannot be read, or holds what it may not.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise PolicyFileError(path, None, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PolicyFileError(path, None, f"is not UTF-8 text: {error}") from error
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r" \(at line (\d+)[^)]*\)$", str(error))  # the error has no attribute before Python 3.14
        problem = str(error)[: place.start()] if place else str(error)
        raise PolicyFileError(path, int(place[1]) if place else None, f"not valid TOML: {problem}") from error
    return dict(_check(path, text, document))


def _check(path: Path, text: str, document: dict[str, Any]) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    schema = document.pop("schema", None)
    if schema != SCHEMA:
        raise PolicyFileError(path, _line(text, "", "schema"), f"schema is {schema!r}; expected {SCHEMA}")
    for gfx, table in document.items():
        if gfx not in load_archs():
            allowed = f"allowed: {', '.join(load_archs())}"
            raise PolicyFileError(path, _line(text, gfx, None), f"GPU {gfx!r} is not known; {allowed}")
        _refuse_unknown(path, text, (gfx, table), DIRECTIONS)
        for direction, rule in table.items():
            name = f"{gfx}.{direction}"
            _refuse_unknown(path, text, (name, rule), _KEYS)
            if missing := [key for key in _REQUIRED if key not in rule]:
                raise PolicyFileError(path, _line(text, name, None), f"[{name}] lacks {', '.join(missing)}")
            for key, value in rule.items():
                if type(value) is not _KEYS[key]:
                    problem = f"{name}.{key} is {value!r}; expected {_KEYS[key].__name__}"
                    raise PolicyFileError(path, _line(text, name, key), problem)
            if rule["backend"] not in BACKENDS:
                problem = f"{name}.backend is {rule['backend']!r}; allowed: {', '.join(BACKENDS)}"
                raise PolicyFileError(path, _line(text, name, "backend"), problem)
            yield (gfx, direction), rule


def _refuse_unknown(path: Path, text: str, named: tuple[str, Any], allowed: Iterable[str]) -> None:
    name, table = named
    if not isinstance(table, dict):
        raise PolicyFileError(path, _line(text, "", name), f"{name} is {table!r}; expected a table [{name}]")
    for key in table:
        if key not in allowed:
            line = _line(text, name, key) or _line(text, f"{name}.{key}", None)
            raise PolicyFileError(path, line, f"{name}.{key} is not known; allowed: {', '.join(allowed)}")


def _line(text: str, table: str, key: str | None) -> int | None:
    """The line of a key of a table, or of the table's header; None where it is written in another way than usual."""
    current = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[\[?\s*([^\]]+?)\s*\]", line):
            current = header[1].replace('"', "")
            if key is None and (current == table or current.startswith(f"{table}.")):
                return number
        elif key is not None and current == table and re.match(rf'\s*"?{re.escape(key)}"?\s*=', line):
            return number
    return None


def write(path: Path, tables: dict[tuple[str, str], dict[str, Any]]) -> None:
    """Write a policy file in one step, so that no process sees half of it.

    Raises:
        PolicyFileError: it cannot be written.
    """
    lines = [
        "# Which backend flash-attn-rocm runs on each GPU, over the package's table; `flash-attn-rocm tune` writes it.",
        "# Deleting it is safe; FLASH_ATTN_ROCM_BACKEND overrides it.",
        f"schema = {SCHEMA}",
    ]
    for (gfx, direction), table in sorted(tables.items()):
        lines += ["", f"[{gfx}.{direction}]"]
        lines += [f"{key} = {_toml(value)}" for key, value in table.items()]
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_text("\n".join(lines) + "\n", encoding="utf-8")
        scratch.replace(path)
    except OSError as error:
        raise PolicyFileError(path, None, f"cannot be written: {error.strerror}") from error


def _toml(value: Any) -> str:
    """A string, number, table or list as TOML; strings as JSON has them, which TOML reads too."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + "".join(f"\n  {_toml(item)}," for item in value) + ("\n]" if value else "]")
    return json.dumps(value, ensure_ascii=False)
