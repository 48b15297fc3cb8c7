"""AMD's hand-written attention kernels: their arguments by the names in their metadata, problems, fp64 references.

What each argument means is known from the launch code in the wheel: aiter_meta/csrc/include, aiter_meta/hsa.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
from elftools.elf.elffile import ELFFile

from tests.isa.hip_runtime import Buffer, Hip

POISON = struct.pack("<I", 0x7FE17FE1)
LOG2E = 1.4426950408889634
Shape = tuple[int, ...]


@cache
def metadata(path: Path) -> dict[str, Any]:
    """The one kernel that the code object describes."""
    with path.open("rb") as file:
        notes = [note for segment in ELFFile(file).iter_segments("PT_NOTE") for note in segment.iter_notes()]
    kernels = msgpack.unpackb(notes[0]["n_desc"])["amdhsa.kernels"]
    assert len(kernels) == 1
    return dict(kernels[0])


def pack_arguments(kernel: Mapping[str, Any], values: Mapping[str, int | float | Buffer]) -> bytes:
    """The argument segment: every argument that has a name by it, poison elsewhere."""
    data = bytearray(POISON * (kernel[".kernarg_segment_size"] // 4))
    for argument in kernel[".args"]:
        name, offset = argument[".name"], argument[".offset"]
        if name == "pad":
            continue
        value = values[name]
        if isinstance(value, float):
            struct.pack_into("<f", data, offset, value)
        elif isinstance(value, Buffer):
            struct.pack_into("<Q", data, offset, value.address)
        else:
            struct.pack_into("<i" if value < 0 else "<I", data, offset, value)
    return bytes(data)


@dataclass(frozen=True)
class Format:
    """A 16-bit float: its significand's bits, and how numpy holds it."""

    bits: int

    def encode(self, values: np.ndarray) -> np.ndarray:
        """To the nearest, of two the even one."""
        if self.bits == 11:
            return values.astype(np.float16).view(np.uint16)
        raw = values.astype(np.float32).view(np.uint32)
        return ((raw + 0x7FFF + (raw >> 16 & 1)) >> 16).astype(np.uint16)

    def decode(self, raw: np.ndarray) -> np.ndarray:
        if self.bits == 11:
            return raw.view(np.float16).astype(np.float64)
        return (raw.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


FORMATS = {"bf16": Format(8), "fp16": Format(11)}


@dataclass(frozen=True)
class Mask:
    """Which keys a query sees: those from row - left to row + right, both after `shift` (bottom right: k - q)."""

    left: int = -1  # -1: no limit
    right: int = -1
    bottom_right: bool = False

    def visible(self, q: int, k: int) -> np.ndarray:
        row = np.arange(q)[:, None] + (k - q if self.bottom_right else 0)
        column = np.arange(k)[None, :]
        seen = np.ones((q, k), bool)
        if self.left >= 0:
            seen &= column >= row - self.left
        if self.right >= 0:
            seen &= column <= row + self.right
        return seen


@dataclass(frozen=True)
class Problem:
    """Sequences of q and k rows, packed one behind another, each row [heads, dim]."""

    format: Format
    q: tuple[int, ...]
    k: tuple[int, ...]
    heads: int = 2
    heads_k: int = 2
    dim: int = 128
    dim_v: int = 128
    mask: Mask = Mask()
    q_factor: float = 1.0  # large: one key wins, so that a row of o is one of v; 0: all scores are equal
    integer_v: bool = False

    @property
    def scale(self) -> float:
        return float(np.float32(self.dim**-0.5))

    @cached_property
    def tensors(self) -> dict[str, np.ndarray]:
        """Raw 16-bit inputs: q, do [rows, heads, dim], k, v [rows, heads_k, dim]."""
        draws = np.random.default_rng(sum(self.q) * 131 + sum(self.k))
        rows_q, rows_k = sum(self.q), sum(self.k)
        shapes = {
            "q": (rows_q, self.heads, self.dim),
            "k": (rows_k, self.heads_k, self.dim),
            "v": (rows_k, self.heads_k, self.dim_v),
            "do": (rows_q, self.heads, self.dim_v),
        }
        numbers = {name: draws.standard_normal(shape) for name, shape in shapes.items()}
        numbers["q"] *= self.q_factor
        if self.integer_v:
            numbers["v"] = np.round(numbers["v"] * 4)
        return {name: self.format.encode(data) for name, data in numbers.items()}

    def head(self, name: str, sequence: int, head: int) -> np.ndarray:
        """One head of one sequence of an input, as fp64 [rows, dim]."""
        lengths = self.q if name in ("q", "do") else self.k
        start = sum(lengths[:sequence])
        index = head if name in ("q", "do") else head // (self.heads // self.heads_k)
        return self.format.decode(self.tensors[name][start : start + lengths[sequence], index])


@dataclass
class Sum:
    """An exact result, and of the products that it is the sum of: their absolute sum, and the sum of their squares.

    `others`: the absolute sum of the factors that are not rounded. `f32`: how far roundings of f32 in what comes before
    may move the result.
    """

    value: np.ndarray
    absolute: np.ndarray
    squares: np.ndarray
    others: np.ndarray
    f32: np.ndarray | float = 0.0

    @classmethod
    def of(cls, a: np.ndarray, b: np.ndarray) -> Sum:
        """The matrix product."""
        others = np.broadcast_to(np.abs(b).sum(0), (len(a), b.shape[1]))
        return cls(a @ b, np.abs(a) @ np.abs(b), (a * a) @ (b * b), others)


@dataclass
class Attention:
    """What one head of one sequence gives in fp64."""

    o: Sum
    lse: np.ndarray
    delta: np.ndarray
    dq: Sum
    dk: Sum
    dv: Sum


def attention(problem: Problem, sequence: int, head: int) -> Attention:
    q, k, v, do = (problem.head(name, sequence, head) for name in ("q", "k", "v", "do"))
    scores = np.where(problem.mask.visible(len(q), len(k)), problem.scale * (q @ k.T), -np.inf)
    largest = scores.max(1, keepdims=True)
    largest[np.isinf(largest)] = 0.0
    weights = np.exp(scores - largest)
    total = weights.sum(1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        p = np.where(total > 0, weights / total, 0.0)
        lse = (largest + np.log(total))[:, 0]
    o = Sum.of(p, v)
    delta = (do * o.value).sum(1)
    ds = p * (do @ v.T - delta[:, None])
    dq, dk = Sum.of(problem.scale * ds, k), Sum.of(problem.scale * ds.T, q)
    cancelled = problem.scale * 2.0**-22 * p * (np.abs(do) @ np.abs(v).T + np.abs(delta)[:, None])
    dq.f32, dk.f32 = cancelled @ np.abs(k), cancelled.T @ np.abs(q)
    return Attention(o, lse, delta, dq, dk, Sum.of(p.T, do))


@dataclass(frozen=True)
class Rounding:
    """One operand of each product is rounded by at most `operand` of it, then the result by `result` of it, and either
    by `step` at least (subnormal numbers). `biased`: operands are truncated, so that all roundings have one direction.
    """

    operand: float
    result: float
    step: float
    biased: bool


def assert_close(got: np.ndarray, exact: Sum, rounding: Rounding, what: str) -> None:
    """Errors as rounding explains them: none is larger than all roundings in one direction give, and their root mean
    square is that of independent ones.
    """
    operand, result, step = rounding.operand, rounding.result, rounding.step
    errors = got - exact.value
    assert np.isfinite(got).all(), f"{what}: {np.count_nonzero(~np.isfinite(got))} results are no numbers"
    allowed = 1.02 * (operand * exact.absolute + result * np.abs(exact.value)) + 1e-5 * exact.absolute + exact.f32
    allowed += step * (1 + exact.others) + 1e-30
    worst = np.abs(errors) / allowed
    at = np.unravel_index(worst.argmax(), worst.shape)
    assert worst.max() <= 1, f"{what}{list(at)}: {got[at]} instead of {exact.value[at]}, allowed error {allowed[at]}"
    drift = (operand * exact.value) ** 2 if rounding.biased else 0.0
    expected = np.mean((operand**2 * exact.squares + result**2 * exact.value**2) / 3 + drift)
    actual = np.mean(errors**2)
    assert actual <= 1.5 * expected + 1e-12, (
        f"{what}: root mean square error {actual**0.5}, roundings give {expected**0.5}"
    )


class Golden:
    """A golden kernel on the emulated GPU."""

    def __init__(self, hip: Hip, path: Path) -> None:
        self.hip, self.kernel = hip, metadata(path)
        self.function = hip.kernel(path, self.kernel[".name"])

    def launch(self, values: Mapping[str, int | float | Buffer], grid: tuple[int, int, int]) -> None:
        block = tuple(self.kernel[".reqd_workgroup_size"])
        self.hip.launch(self.function, pack_arguments(self.kernel, values), grid, block)


def byte_strides(names: tuple[str, str, str], rows: int, heads: int, dim: int) -> dict[str, int]:
    """The strides of [batch, rows, heads, dim] in bytes, under the names of the row's, the head's and the batch's."""
    row, head, batch = names
    return {row: heads * dim * 2, head: dim * 2, batch: rows * heads * dim * 2}


def offsets(lengths: tuple[int, ...]) -> np.ndarray:
    """Where each sequence starts, and where the last ends."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
