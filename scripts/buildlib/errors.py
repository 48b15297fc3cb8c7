"""Every error of the build scripts. `exit_code` is what the command returns: 1 = the work failed, 2 = a bad request."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


class BuildError(Exception):
    """Base of all errors of the build scripts."""

    exit_code = 1


class BadRequestError(BuildError, ValueError):
    """An option or environment variable has a value that cannot be used."""

    exit_code = 2

    def __init__(self, what: str, value: object, allowed: Iterable[object] | str, hint: str = "") -> None:
        self.what = what
        self.value = value
        choices = allowed if isinstance(allowed, str) else ", ".join(str(item) for item in allowed)
        super().__init__(f"{what} is {value!r}; allowed: {choices}.{' ' + hint if hint else ''}")


class ToolchainNotFoundError(BuildError):
    """No place has everything that compiling a kernel needs."""

    def __init__(self, tried: Iterable[tuple[str, str, str]]) -> None:
        lines = ["no toolchain can compile the kernels. Tried:"]
        for where, reason, fix in tried:
            lines.append(f"  {where}: {reason}")
            if fix:
                lines.append(f"    {fix}")
        lines.append(
            "Needed: clang >= 20 with the amdgcn target and lld, HIP headers >= 6.2, ROCm device-library bitcode."
        )
        super().__init__("\n".join(lines))


class CommandError(BuildError):
    """A command we ran failed. Prints the command and what it wrote."""

    def __init__(self, what: str, command: str, code: int, output: str) -> None:
        self.command = command
        self.code = code
        self.output = output
        super().__init__(f"{what} failed (exit code {code}):\n  {command}\n{output.rstrip()}")


class CompileError(BuildError):
    """The compiler rejected a translation unit."""

    def __init__(self, unit: str, first_error: str, command: str, log: Path) -> None:
        self.unit = unit
        self.first_error = first_error
        self.command = command
        super().__init__(
            f"compiling {unit} failed. The first error:\n\n{first_error.rstrip()}\n\n"
            f"All messages: {log}\nRun it again:\n  {command}"
        )
