"""Every error of kernel planning, CK sources and manifests. `exit_code` is what a command line tool returns for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path


class CkError(Exception):
    """Base of all errors of this package: 1 = the work failed."""

    exit_code = 1


class TableError(CkError, ValueError):
    """A table (`variants.toml`, `tiles/*.toml`, `pin.toml`) is malformed."""

    def __init__(self, path: Path, problem: str) -> None:
        self.path = path
        super().__init__(f"{path.parent.name}/{path.name}: {problem}")


class RequestError(CkError, ValueError):
    """Someone asked for a profile, GPU or head dim that does not exist."""

    exit_code = 2

    def __init__(self, what: str, value: object, allowed: Iterable[object], hint: str = "") -> None:
        self.what = what
        self.value = value
        self.allowed = tuple(allowed)
        choices = ", ".join(str(item) for item in self.allowed)
        super().__init__(f"{what} {value!r} is not available; allowed: {choices}.{' ' + hint if hint else ''}")


class PlanError(CkError):
    """A table row asks for a kernel that cannot be built, or for which no tile is known."""

    def __init__(self, kernel: str, reason: str) -> None:
        self.kernel = kernel
        self.reason = reason
        super().__init__(
            f"kernel {kernel} cannot be built: {reason}. Change its row in ck/variants.toml or its tile in ck/tiles/."
        )


class CodeObjectError(CkError):
    """A compiled code object does not say what the plan and the compiler promised."""

    def __init__(self, path: Path, problem: str) -> None:
        self.path = path
        super().__init__(f"code object {path.name}: {problem}. Remove it and run `./pixiw run kernels` again.")


class CkSourceError(CkError):
    """CK's sources cannot be had from the place that was asked for."""

    def __init__(self, problem: str, next_step: str) -> None:
        super().__init__(f"CK sources: {problem}. {next_step}")


class HashMismatchError(CkSourceError):
    """A downloaded file is not the pinned one; `first_step` is what to do before it is fetched again."""

    def __init__(self, name: str, expected: str, got: str, size: int, first_step: str = "") -> None:
        self.expected = expected
        self.got = got
        again = "run `./pixiw run fetch-ck` again."
        super().__init__(
            f"{name} is not the pinned file: sha256 expected {expected}, got {got} ({size} bytes)",
            "It was altered or cut short; it was not used. "
            + (f"{first_step} and {again}" if first_step else again.capitalize()),
        )


def check_keys(
    table: object, required: dict[str, type | tuple[type, ...]], path: Path, where: str, optional: Sequence[str] = ()
) -> dict[str, object]:
    """Return `table` as a dict after checking its keys (exactly `required`, less `optional`) and their types.

    Raises:
        TableError: a key is unknown, missing or of the wrong type.
    """
    if not isinstance(table, dict):
        raise TableError(path, f"{where} is {table!r}; expected a table")
    if unknown := sorted(set(table) - set(required)):
        raise TableError(path, f"unknown keys {unknown} in {where}; allowed: {sorted(required)}")
    if missing := sorted(set(required) - set(table) - set(optional)):
        raise TableError(path, f"missing keys {missing} in {where}")
    for key, value in table.items():
        kinds = required[key]
        allowed = kinds if isinstance(kinds, tuple) else (kinds,)
        if type(value) not in allowed:  # isinstance would take a bool for an int
            names = " or ".join(kind.__name__ for kind in allowed)
            raise TableError(path, f"{where} key {key} is {value!r}; expected {names}")
    return table
