"""Find the first error in what a compiler wrote."""

from __future__ import annotations

import re

_ERROR = re.compile(r"(?:^|\s)(?:fatal )?error:")
_NEXT = re.compile(r"(?:^|\s)(?:(?:fatal )?error|warning):|^In file included from|^\d+ (?:error|warning)s? generated")
_LAST_LINES = 40


def first_error(output: str, code: int) -> str:
    """The first error whole, from its `In file included from` lines to its last note; the end of the output if none."""
    lines = output.splitlines()
    at = next((index for index, line in enumerate(lines) if _ERROR.search(line)), None)
    if at is None:
        killed = " The compiler was killed, usually for want of memory: lower MAX_JOBS." if code in (-9, 137) else ""
        return "\n".join([*lines[-_LAST_LINES:], f"No error message; exit code {code}.{killed}"])
    start = at
    while start and lines[start - 1].startswith("In file included from"):
        start -= 1
    end = next((index for index in range(at + 1, len(lines)) if _NEXT.search(lines[index])), len(lines))
    return "\n".join(lines[start:end])
