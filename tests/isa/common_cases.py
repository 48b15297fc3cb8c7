"""The kernels of kernels/common: their inputs, and what numpy and Python's integers say they must give.

Each case is one kernel. Its arguments are its outputs, then its inputs, then numbers of 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

THREADS = 64
Arrays = list[np.ndarray]


@dataclass(frozen=True)
class Case:
    """`source` is the kernel's file without its ending; `expected` are the outputs, shaped as the kernel's buffers.

    `tolerance` is 0 where every bit is defined.
    """

    source: str
    kernel: str
    groups: int
    inputs: Arrays
    expected: Arrays
    numbers: Sequence[int] = field(default_factory=tuple)
    tolerance: float = 0.0
    initial: Arrays | None = None  # of outputs that the kernel reads

    def __str__(self) -> str:
        return self.kernel + "".join(f"-{number}" for number in self.numbers)


def generator(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def attention(causal: bool) -> Case:
    heads, n, dim = 2, 128, 32
    q, k, v = generator(1).standard_normal((3, heads, n, dim)).astype(np.float16)
    scores = np.einsum("hid,hjd->hij", q.astype(np.float64), k.astype(np.float64)) / np.sqrt(dim)
    if causal:
        scores[:, ~np.tri(n, dtype=bool)] = -np.inf
    largest = scores.max(-1, keepdims=True)
    weights = np.exp(scores - largest)
    total = weights.sum(-1, keepdims=True)
    output = np.einsum("hij,hjd->hid", weights / total, v.astype(np.float64))
    lse = (largest + np.log(total))[..., 0]
    # f32 throughout: some hundred roundings of 2 ** -24 on values of about 1.
    return Case("attention", "attention", heads * n // THREADS, [q, k, v], [f32(output), f32(lse)], (n, causal), 2e-5)


def f32(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float32)


def reduce_floats() -> Case:
    data = f32(generator(2).standard_normal((5, THREADS)))
    sums = data.copy()
    while sums.shape[1] > 1:
        half = sums.shape[1] // 2
        sums = sums[:, :half] + sums[:, half:]
    return Case("reduce", "reduce_floats", 5, [data], [np.stack([sums[:, 0], data.min(1), data.max(1)], 1)])


def scan() -> Case:
    data = generator(3).integers(0, 2**32, (4, THREADS), np.uint32)
    bits = (data >> 7).astype(np.uint16)
    expected = [np.cumsum(data, 1, np.uint32), np.bitwise_xor.accumulate(bits, 1)]
    return Case("reduce", "scan", 4, [data], expected)


def transpose() -> Case:
    data = generator(4).integers(0, 256, (2, THREADS, THREADS), np.uint8)
    return Case("reduce", "transpose", 2, [data], [np.ascontiguousarray(data.transpose(0, 2, 1))])


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def divided(a: int, b: int) -> tuple[int, int]:
    """Quotient and remainder as C has them: towards zero."""
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return quotient, a - quotient * b


OPERATIONS_32: list[Callable[[int, int], int]] = [
    lambda x, y: x + y,
    lambda x, y: x - y,
    lambda x, y: x * y,
    lambda x, y: x * y >> 32,
    lambda x, y: signed(x, 32) * signed(y, 32) >> 32,
    lambda x, y: x // (y | 1),
    lambda x, y: x % (y | 1),
    lambda x, y: divided(signed(x, 32), y >> 8 | 1)[0],
    lambda x, y: divided(signed(x, 32), y >> 8 | 1)[1],
    lambda x, y: x << (y & 31),
    lambda x, y: x >> (y & 31),
    lambda x, y: signed(x, 32) >> (y & 31),
    lambda x, y: x << (y & 31) | x >> (32 - (y & 31)) % 32,
    lambda x, _: x.bit_count(),
    lambda x, _: 32 - x.bit_length(),
    lambda x, _: (x & -x).bit_length() - 1 if x else 32,
    lambda x, _: int(f"{x:032b}"[::-1], 2),
    min,
    lambda x, y: max(x, y, key=lambda value: signed(value, 32)),
    lambda x, y: (x & y) | (~x & 0x0F0F0F0F),
    lambda x, y: (x ^ y) & 0x00FFFF00,
    lambda x, y: (x >> 8 & 0xFF) + signed(y >> 16, 8),
    lambda x, _: abs(signed(x, 32)),
    lambda x, y: (x & 0xFFFF) * (y & 0xFFFF) + signed(x, 16) * signed(y, 16),
]
OPERATIONS_64: list[Callable[[int, int], int]] = [
    lambda x, y: x + y,
    lambda x, y: x - y,
    lambda x, y: x * y,
    lambda x, y: x // (y >> 20 | 1),
    lambda x, y: x % (y >> 20 | 1),
    lambda x, y: divided(signed(x, 64), y >> 40 | 1)[0],
    lambda x, y: x << (y & 63),
    lambda x, y: x >> (y & 63),
    lambda x, y: signed(x, 64) >> (y & 63),
    lambda x, _: x.bit_count(),
    lambda x, _: 64 - (x | 1).bit_length(),
    lambda x, _: int(f"{x:064b}"[::-1], 2),
    min,
    lambda x, y: x ^ y if signed(x, 64) < signed(y, 64) else x & y,
]
EDGES = (0, 1, 2, 0x7F, 0x80, 0xFFFF, 0x8000)


def integers(bits: int, operations: Sequence[Callable[[int, int], int]]) -> Case:
    kind = np.uint32 if bits == 32 else np.uint64
    edges = [*EDGES, (1 << bits) - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1]
    pairs = np.array([(x, y) for x in edges for y in edges], kind)
    a, b = np.concatenate([pairs, generator(bits).integers(0, 2**bits, (3 * THREADS - len(pairs), 2), kind)]).T
    mask = (1 << bits) - 1
    expected = np.array([[op(int(x), int(y)) & mask for op in operations] for x, y in zip(a, b, strict=True)], kind)
    return Case("integer", f"integers_{bits}", 3, [a.copy(), b.copy()], [expected])


def crc32() -> Case:
    import zlib

    data = generator(6).integers(0, 256, (THREADS, 16), np.uint8)
    return Case("integer", "crc32", 1, [data], [np.array([zlib.crc32(row.tobytes()) for row in data], np.uint32)])


def rounded(exact: Fraction) -> np.float32:
    """The f32 nearest to a number, of two the even one."""
    near = np.float32(float(exact))
    candidates = [near, np.nextafter(near, np.float32(-np.inf)), np.nextafter(near, np.float32(np.inf))]
    return min(candidates, key=lambda x: (abs(Fraction(float(x)) - exact), int(x.view(np.uint32)) & 1))


def doubles() -> Case:
    draws = generator(7)
    x, y = draws.standard_normal((2, 2 * THREADS)) * 2.0 ** draws.integers(-40, 30, (2, 2 * THREADS))
    y[y == 0] = 1
    x[:4] = (0.0, -0.0, 0.5, 2.0**30 + 0.5)
    fused = np.array(
        [float(Fraction(a) * Fraction(b) + Fraction(a)) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    )
    fused = np.where(fused == 0, x * y + x, fused)  # a fraction has no -0
    polynomial = np.zeros_like(x)
    for i in range(8, 0, -1):
        polynomial = polynomial * (x * 0.0009765625) + 1.0 / i
    columns = [x + y, x - y, x * y, x / y, fused, f32(x).astype(np.float64), np.trunc(x * 0.001), np.trunc(np.abs(x))]
    columns += [np.where(x < y, x, y), np.floor(x), np.trunc(y), np.abs(x) - y, polynomial]
    # Through an integer, zero has no sign.
    columns[6] += 0.0
    return Case("floating", "doubles", 2, [x, y], [np.stack(columns, 1)])


def floats() -> Case:
    draws = generator(8)
    x, y = f32(draws.standard_normal((2, 2 * THREADS)) * 2.0 ** draws.integers(-30, 18, (2, 2 * THREADS)))
    x[:8] = (0.0, -0.0, 0.5, 1.5, 2.5, -2.5, 1e-40, -3e-39)  # the last two are denormal
    y[:4] = (1.0, -1.0, 2e-40, 3.0)
    x_bits, y_bits = x.view(np.uint32), y.view(np.uint32)
    fused = np.array(
        [rounded(Fraction(a) * Fraction(b) - Fraction(a)) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    )
    fused = np.where(fused == 0, x * y - x, fused)
    with np.errstate(over="ignore"):
        quotient = x / y
    columns = [x + y, x - y, x * y, quotient, fused, x.astype(np.float16), np.trunc(x) + 0.0, np.trunc(np.abs(x))]
    columns += [(x_bits >> 3).astype(np.float32), y_bits.view(np.int32).astype(np.float32), np.rint(x), np.ceil(y)]
    columns += [np.where(x >= y, x, -y), x_bits >> 9 & 0xFF, (y_bits >> 5).astype(np.int16)]
    columns += [np.ldexp(x, (y_bits & 7).astype(np.int32) - 3), np.trunc(x.astype(np.float64) * 2**20) + 0.0]
    columns += [((x_bits + 0x7FFF + (x_bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)]
    return Case("floating", "floats", 2, [x, y], [np.stack([f32(column) for column in columns], 1)])


def halves() -> Case:
    draws = generator(9)
    x, y = (draws.standard_normal((2, THREADS)) * 2.0 ** draws.integers(-8, 9, (2, THREADS))).astype(np.float16)
    y[:6] = x[:6]
    wide = f32(x)
    columns = [x + y, x - y, x * y, wide + f32(y) * np.float32(3), (wide * 16).astype(np.int16), np.where(x < y, x, y)]
    columns += [np.where(x == y, np.float16(1), -x), np.abs(wide).astype(np.uint16)]
    return Case("floating", "halves", 1, [x, y], [np.stack([column.astype(np.float16) for column in columns], 1)])


def collatz() -> Case:
    data = generator(10).integers(1, 100_000, 2 * THREADS, np.uint32)
    data[:4] = (0, 1, 2, 97)
    rounds, largest = np.zeros_like(data), data.copy()
    for i, start in enumerate(data.tolist()):
        x = start
        while x > 1:
            x = 3 * x + 1 if x & 1 else x // 2
            rounds[i] += 1
            largest[i] = max(largest[i], x)
    return Case("branches", "collatz", 2, [data], [rounds, largest])


def run_machine(a: int, codes: Sequence[int]) -> int:
    """What branches.cl's machine computes, on numbers of 32 bits."""
    b = 1
    for code in codes:
        if code == 0:
            a += b
        elif code == 1:
            a -= 3 * b
        elif code == 2:
            b = a
        elif code == 3:
            a ^= signed(b << 2, 32)
        elif code == 4:
            a = -a
        elif code == 5:
            a, b = (b, a) if a > b else (a, b)
        elif code == 6:
            for i in range(b & 7):
                a = signed(a + i, 32)
                if a > 1000:
                    break
        elif code == 7:
            a = a if a & 1 else divided(a, 2)[0]
        elif code == 8:
            a *= b
        elif code == 9:
            a = a >> 3 if a < 0 else a >> 1
        elif code == 10:
            if b == 0:
                return a
            a = divided(a, b)[1]
        else:
            b += code
        a, b = signed(a, 32), signed(b, 32)
    return signed(a ^ signed(b << 1, 32), 32)


def machine() -> Case:
    programs = generator(11).integers(0, 2**32, (2 * THREADS, 3), np.uint32)
    results = [
        run_machine(i % THREADS, [int(row[step // 8]) >> step % 8 * 4 & 15 for step in range(24)])
        for i, row in enumerate(programs)
    ]
    return Case("branches", "machine", 2, [programs], [np.array(results, np.int32)])


def common_divisor() -> Case:
    a, b = generator(12).integers(0, 2**20, (2, THREADS), np.uint32) & np.uint32(0xFFFFC)
    lowest = [(x | y) & -(x | y) if x and y else 1 for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    twos = [bit.bit_length() - 1 for bit in lowest]
    return Case("branches", "common_divisor", 1, [a, b], [np.stack([np.gcd(a, b), np.array(twos, np.uint32)], 1)])


def sort_numbers() -> Case:
    data = generator(13).integers(-50, 50, (2 * THREADS, 24), np.int32)
    order = np.argsort(data, axis=1, kind="stable")
    expected = [np.take_along_axis(data, order, 1), order.astype(np.uint8)]
    return Case("private_arrays", "sort_numbers", 2, [data], expected)


def follow() -> Case:
    steps = generator(14).integers(0, 2**32, (THREADS, 16), np.uint32)
    totals = []
    for row in steps.tolist():
        shorts = [word & 0xFFFF for word in row]
        longs = [word << 16 | i for i, word in enumerate(row)]
        total = at = 0
        for i in range(40):
            after = (shorts[at] ^ i) & 15
            total = (total + (longs[after] ^ (~row[(after + i) & 15] & 0xFFFFFFFF))) & (2**64 - 1)
            shorts[after] = (shorts[after] + (row[at] >> 1)) & 0xFFFF
            longs[at] = total
            at = after
        totals.append(total)
    return Case("private_arrays", "follow", 1, [steps], [np.array(totals, np.uint64)])


CASES = [
    attention(causal=False),
    attention(causal=True),
    reduce_floats(),
    scan(),
    transpose(),
    integers(32, OPERATIONS_32),
    integers(64, OPERATIONS_64),
    crc32(),
    doubles(),
    floats(),
    halves(),
    collatz(),
    machine(),
    common_divisor(),
    sort_numbers(),
    follow(),
]
