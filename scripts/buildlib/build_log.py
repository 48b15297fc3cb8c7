"""Collects what rattler-build says while it builds one package: a log file, the latest line, and the first error."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

_ERROR = re.compile(r"\berror\b|^Traceback|\bFAILED\b|^✗|× ", re.IGNORECASE)
_CONTEXT_LINES = 60  # of the first error: a compiler's message with its notes, or a Python traceback


class BuildLog:
    """A progress callback of rattler-build. `report` gets each line that a build or test script prints."""

    def __init__(self, path: Path, report: Callable[[str], None]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file = path.open("w", encoding="utf-8")
        self._report = report
        self._script_lines: list[str] = []
        self._errors: list[str] = []

    def close(self) -> None:
        """End the log file."""
        self._file.close()

    def first_error(self) -> str:
        """From the first line of the scripts' output that looks like an error; else the last lines of that output."""
        for number, line in enumerate(self._script_lines):
            if _ERROR.search(line):
                return "\n".join(self._script_lines[number : number + _CONTEXT_LINES])
        return "\n".join(self._script_lines[-_CONTEXT_LINES:] + self._errors)

    def on_log(self, event: Any) -> None:
        """A message of rattler-build, or a line of a script that it runs."""
        self._file.write(event.message + "\n")
        self._file.flush()
        span = event.span or ""
        if span.startswith(("Running build script", "Running script test", "Running python test", "Running test")):
            if not event.message.startswith("+ "):  # the shell's own trace
                self._script_lines.append(event.message)
                self._report(event.message.strip())
        elif event.level == "error":
            self._errors.append(event.message)

    def on_download_start(self, event: Any) -> None:
        """Nothing to show: local channels are linked, not downloaded."""

    def on_download_progress(self, event: Any) -> None:
        """Nothing to show."""

    def on_download_complete(self, event: Any) -> None:
        """Nothing to show."""

    def on_build_step(self, event: Any) -> None:
        """rattler-build 0.73 never sends this."""
