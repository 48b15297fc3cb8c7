"""What a kernel's main loop holds, from llvm-objdump's text: spills matter only where they happen often."""

from __future__ import annotations

import re
from dataclasses import dataclass

_KERNEL = re.compile(r"^[0-9a-f]+ <(\w+)>:$")
_INSTRUCTION = re.compile(r"^\s+(\S+).*// ([0-9A-F]+):")
_BRANCH = re.compile(r"^\s+s_c?branch\S*\s.*// ([0-9A-F]+):.*<\w+(?:\+0x([0-9a-f]+))?>$")
_MATRIX = ("v_wmma", "v_mfma")


@dataclass(frozen=True)
class MainLoop:
    """Static counts of the longest loop that has matrix instructions."""

    instructions: int
    matrix: int
    scratch: int


@dataclass
class _Body:
    names: list[str]
    places: dict[int, int]  # address: index
    branches: list[tuple[int, int]]  # index, offset of the target from the kernel's start
    start: int = -1


def _bodies(listing: str) -> dict[str, _Body]:
    bodies: dict[str, _Body] = {}
    body = _Body([], {}, [])
    for line in listing.splitlines():
        if label := _KERNEL.match(line):
            body = bodies.setdefault(label.group(1), _Body([], {}, []))
        elif found := _INSTRUCTION.match(line):
            address = int(found.group(2), 16)
            body.start = address if body.start < 0 else body.start
            body.places[address] = len(body.names)
            if branch := _BRANCH.match(line):
                body.branches.append((len(body.names), int(branch.group(2) or "0", 16)))
            body.names.append(found.group(1))
    return bodies


def _is_matrix(name: str) -> bool:
    return name.startswith(_MATRIX)


def find_main_loops(listing: str) -> dict[str, MainLoop | None]:
    """The main loop of each kernel in the output of `llvm-objdump -d`; None for a kernel without such a loop."""
    loops: dict[str, MainLoop | None] = {}
    for kernel, body in _bodies(listing).items():
        spans = [
            body.names[first : last + 1]
            for last, offset in body.branches
            if (first := body.places.get(body.start + offset, last + 1)) <= last
        ]
        spans = [span for span in spans if any(map(_is_matrix, span))]
        loops[kernel] = None
        if spans:
            longest = max(spans, key=len)
            scratch = sum(name.startswith("scratch_") for name in longest)
            loops[kernel] = MainLoop(len(longest), sum(map(_is_matrix, longest)), scratch)
    return loops
