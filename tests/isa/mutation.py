"""Single-operand mutations of a kernel's decoded listing, and whether the comparison of `verify` notices them.

A mutant is the kernel's code object with the changed listing in the cache. Only the text changes, which the emulator
executes, but for branches, whose target is in the machine word. A number in the padding of the ELF header gives each
mutant a hash of its own.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from elftools.elf.elffile import ELFFile

from flash_attn_rocm.reference import Mask, Scoring, compare
from tests.isa.attention import Case, argument_values, fill_arguments, to_bits
from tests.isa.hip_runtime import Buffer, Hip, HipError, Pointer
from tests.isa.listings import listing_file, sealed

ELF_PADDING = 9  # e_ident[EI_PAD]
UNTOUCHED = (
    "s_delay_alu",
    "s_nop",
    "s_clause",
    "s_code_end",
    "s_wait_alu",
    "s_endpgm",
    "s_sendmsg",
    "s_barrier",
    "v_nop",
)
INLINE_FLOATS = ("0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0")
OPERAND = re.compile(
    r"(?P<register>\b[vsa]\d+\b)|(?P<range>\b[vsa]\[\d+:\d+\])|(?P<hex>\b0x[0-9a-f]+\b)|(?P<float>-?\b\d+\.\d+\b)"
    r"|(?P<modifier>\b(?:offset\d?|op_sel|op_sel_hi|neg_lo|neg_hi):(?:\d+|\[[01,]+\]))|(?P<negation>-(?=[vs|]))"
    r"|(?P<integer>(?<![\w.:\[])-?\d+\b(?![.:\]]))"
)


@dataclass(frozen=True)
class Line:
    words: tuple[int, ...]
    text: str
    pc: int


@dataclass(frozen=True)
class Mutant:
    """`index` of the instruction that becomes `line`."""

    index: int
    line: Line
    original: str

    def __str__(self) -> str:
        text = self.line.text
        if text == self.original:
            text += f" (to {self.line.words[0] & 0xFFFF:#x})"
        return f"{self.line.pc:#x}: {self.original}  =>  {text}"


def read_kernel(listing: str, name: str) -> list[Line]:
    """Instructions of one kernel of a decoded listing."""
    lines: list[Line] = []
    pc, inside = 0, False
    for row in listing.splitlines()[1:]:
        if row.startswith("@"):
            begin, _, symbol = row[1:].partition(" ")
            pc, inside = int(begin, 16), symbol == name
        elif inside:
            words, _, text = row.partition("\t")
            lines.append(Line(tuple(int(word, 16) for word in words.split()), text, pc))
            pc += 4 * len(lines[-1].words)
    return lines


def write_listing(name: str, lines: Sequence[Line]) -> str:
    rows = [" ".join(f"{word:x}" for word in line.words) + "\t" + line.text for line in lines]
    return sealed("\n".join([f"@{lines[0].pc:x} {name}", *rows, ""]))


def other_register(text: str, limits: dict[str, int], draw: random.Random) -> str:
    """Another register of the same file and width, half the time a neighbour, inside the kernel's registers."""
    letter, numbers = text[0], [int(number) for number in re.findall(r"\d+", text)]
    width = numbers[-1] - numbers[0] + 1
    # Scalar pairs and quads are aligned.
    step = 1 if letter != "s" or width == 1 else 2 if width == 2 else 4
    choices = [n for n in range(0, limits[letter] - width + 1, step) if n != numbers[0]]
    near = [n for n in choices if abs(n - numbers[0]) <= 4 * step]
    first = draw.choice(near if near and draw.random() < 0.5 else choices)
    return f"{letter}{first}" if ":" not in text else f"{letter}[{first}:{first + width - 1}]"


def other_operand(kind: str, text: str, limits: dict[str, int], draw: random.Random) -> str:
    if kind in ("register", "range"):
        return other_register(text, limits, draw)
    if kind == "hex":
        return f"0x{int(text, 16) ^ 1 << draw.randrange(max(4, int(text, 16).bit_length())):x}"
    if kind == "float":
        return draw.choice([value for value in INLINE_FLOATS if value != text])
    if kind == "negation":
        return ""
    if kind == "integer":
        return str(draw.choice([n for n in range(-16, 65) if n != int(text)]))
    name, _, value = text.partition(":")
    if value.startswith("["):
        digits = value.strip("[]").split(",")
        place = draw.randrange(len(digits))
        digits[place] = "10"[int(digits[place])]
        return f"{name}:[{','.join(digits)}]"
    return f"{name}:{int(value) ^ 1 << draw.randrange(8)}"


def mutate(lines: Sequence[Line], limits: dict[str, int], draw: random.Random) -> Mutant:
    """One random operand of one random instruction changed."""
    while True:
        index = draw.randrange(len(lines))
        line = lines[index]
        if line.text.startswith(UNTOUCHED):
            continue
        if line.text.startswith(("s_branch", "s_cbranch")):
            target = draw.choice(lines[max(0, index - 40) : index + 40]).pc
            distance = (target - line.pc - 4) // 4 & 0xFFFF
            if distance != line.words[0] & 0xFFFF:
                return Mutant(index, Line((line.words[0] & ~0xFFFF | distance,), line.text, line.pc), line.text)
            continue
        mnemonic, blank, rest = line.text.partition(" ")
        found = list(OPERAND.finditer(rest))
        if not blank or not found:
            continue
        chosen = draw.choice(found)
        changed = other_operand(str(chosen.lastgroup), chosen.group(), limits, draw)
        text = f"{mnemonic} {rest[: chosen.start()]}{changed}{rest[chosen.end() :]}"
        if text != line.text:
            return Mutant(index, Line(line.words, text, line.pc), line.text)


@dataclass(frozen=True)
class Problem:
    """A shape and the values of its inputs: random, peaked (one key wins, so that the output is a row of V), or level
    (all scores 0 and V of small integers). Where the exact result fits the type, the bound is sharp."""

    case: Case
    values: str

    def inputs(self, dim: int, seed: int) -> list[np.ndarray]:
        generator = np.random.default_rng(seed)
        lengths = (self.case.seqlen_q, self.case.heads), *[(self.case.seqlen_k, self.case.heads_k)] * 2
        q, k, v = (generator.standard_normal((self.case.batch, length, heads, dim)) for length, heads in lengths)
        if self.values == "peaked":
            return [q * 40, k, v]
        if self.values == "level":
            return [q * 0, k, np.round(v * 4)]
        return [q * 2, k, v]


def as_tensor(raw: np.ndarray, dtype: str) -> torch.Tensor:
    return torch.from_numpy(raw.view(np.int16).copy()).view(torch.float16 if dtype == "fp16" else torch.bfloat16)


class Bench:
    """Runs mutants of one kernel on prepared problems; subclasses know the kernel's arguments and its reference.

    `limits`: how many registers of each file, by its letter, the kernel has.
    """

    limits: dict[str, int]

    def __init__(self, hip: Hip, path: Path, name: str, listing: str, cache: Path, problems: int) -> None:
        self.hip, self.name, self.cache, self.problems = hip, name, cache, problems
        self.image = path.read_bytes()
        self.lines = read_kernel(listing, name)
        with path.open("rb") as file:
            self.segments = [
                (s["p_vaddr"], s["p_filesz"], s["p_offset"])
                for s in ELFFile(file).iter_segments()
                if s["p_type"] == "PT_LOAD"
            ]

    @cached_property
    def expected(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """What the kernel itself gives."""
        return [self.run(self.function(self.lines, 1 << 30), number) for number in range(self.problems)]

    def run(self, handle: tuple[Pointer, Pointer], number: int) -> tuple[np.ndarray, np.ndarray]:
        """Raw output and LSE of one problem."""
        raise NotImplementedError

    def passes(self, number: int, output: np.ndarray, lse: np.ndarray) -> bool:
        """The comparison that `verify` makes."""
        raise NotImplementedError

    def function(self, lines: Sequence[Line], number: int, changed: Line | None = None) -> tuple[Pointer, Pointer]:
        """The module and kernel of a mutant."""
        image = bytearray(self.image)
        if changed is not None:
            base, _, offset = next(s for s in self.segments if s[0] <= changed.pc < s[0] + s[1])
            at = changed.pc - base + offset
            image[at : at + 4] = changed.words[0].to_bytes(4, "little")
        image[ELF_PADDING : ELF_PADDING + 4] = number.to_bytes(4, "little")
        folder = self.cache / "decoded"
        folder.mkdir(exist_ok=True)
        file = listing_file(folder, image)
        file.write_text(write_listing(self.name, lines))
        try:
            module = self.hip.load(bytes(image))
            return module, self.hip.function(module, self.name)
        finally:
            file.unlink(missing_ok=True)

    def judge(self, mutant: Mutant, number: int) -> str:
        """What becomes of a mutant: refused (cannot be loaded), same, fault, exceeded (the bound), or undetected."""
        lines = [*self.lines[: mutant.index], mutant.line, *self.lines[mutant.index + 1 :]]
        try:
            handle = self.function(lines, number, mutant.line)
        except HipError:
            return "refused"
        different = False
        try:
            for problem in range(self.problems):
                output, lse = self.run(handle, problem)
                wanted, wanted_lse = self.expected[problem]
                if np.array_equal(output, wanted) and np.array_equal(lse.view(np.uint32), wanted_lse.view(np.uint32)):
                    continue
                different = True
                if not self.passes(problem, output, lse):
                    return "exceeded"
        except HipError:
            return "fault"
        finally:
            self.hip.call("hipModuleUnload", handle[0])
        return "undetected" if different else "same"


class CkBench(Bench):
    """A forward kernel of CK, by its row in the manifest."""

    def __init__(
        self, hip: Hip, path: Path, kernel: dict[str, Any], problems: Sequence[Problem], listing: str, cache: Path
    ) -> None:
        super().__init__(hip, path, kernel["name"], listing, cache, len(problems))
        self.kernel = kernel
        self.limits = {"v": kernel["vgprs"], "s": kernel["sgprs"] - 2}
        self.cases = [problem.case for problem in problems]
        self.inputs: list[list[np.ndarray]] = []
        self.buffers: list[list[Buffer]] = []
        dim = kernel["hdim_q"]
        for seed, problem in enumerate(problems):
            raw = [to_bits(data, kernel["dtype"]) for data in problem.inputs(dim, seed)]
            case = problem.case
            lse = np.full((case.batch, case.heads, case.seqlen_q), np.nan, np.float32)
            self.inputs.append(raw)
            self.buffers.append([hip.buffer(data) for data in (*raw, np.full(raw[0].shape, 0x7FE1, np.uint16), lse)])

    def run(self, handle: tuple[Pointer, Pointer], number: int) -> tuple[np.ndarray, np.ndarray]:
        """Raw output and LSE of one problem."""
        case, buffers, kernel = self.cases[number], self.buffers[number], self.kernel
        for buffer in buffers[3:]:
            self.hip.call("hipMemset", Pointer(buffer.address), 0x7F, buffer.bytes)
        dim = kernel["hdim_q"]
        values = argument_values(case, dim, [buffer.address for buffer in buffers], dim**-0.5)
        grid = (case.heads, -(-case.seqlen_q // kernel["tile_m"]), case.batch)
        self.hip.launch(handle[1], fill_arguments(kernel, values), grid, (kernel["block_threads"], 1, 1))
        return buffers[3].read(), buffers[4].read()

    def passes(self, number: int, output: np.ndarray, lse: np.ndarray) -> bool:
        """The comparison that `verify` makes."""
        case, dtype = self.cases[number], self.kernel["dtype"]
        q, k, v = (as_tensor(raw, dtype) for raw in self.inputs[number])
        scoring = Scoring(self.kernel["hdim_q"] ** -0.5, Mask(case.left, case.right))
        return compare(as_tensor(output, dtype), torch.from_numpy(lse), q, k, v, scoring).passed
