"""Dropout's random bytes: Philox against Random123's known answers, and the map against CK's rule written plainly."""

from __future__ import annotations

import pytest
import torch

from flash_attn_rocm import dropout

# kat_vectors of Random123 1.14, philox4x32 with 7 rounds: counter, key, result.
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "5f6fb709 0d893f64 4f121f81 4f730a48"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "5207ddc2 45165e59 4d8ee751 8c52f662"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "4dfccaba 190a87f0 c47362ba b6b5242a"),
]


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN)
def test_philox_gives_the_known_answers(counter: str, key: str, result: str) -> None:
    words = [[torch.tensor([int(word, 16)]) for word in text.split()] for text in (counter, key)]
    got = dropout._philox(tuple(words[0]), tuple(words[1]))
    assert " ".join(f"{int(word):08x}" for word in got) == result


def plain_philox(counter: list[int], key: list[int]) -> list[int]:
    x, y, z, w = counter
    a, b = key
    for _ in range(7):
        left, right = 0xD2511F53 * x, 0xCD9E8D57 * z
        x, y, z, w = (right >> 32) ^ y ^ a, right & 0xFFFFFFFF, (left >> 32) ^ w ^ b, left & 0xFFFFFFFF
        a, b = (a + 0x9E3779B9) & 0xFFFFFFFF, (b + 0xBB67AE85) & 0xFFFFFFFF
    return [x, y, z, w]


def plain_byte(seed: int, offset: int, batch_head: int, i: int, j: int) -> int:
    """From ck_tile's reference_batched_dropout_randval.hpp: which run, and which of its 16 bytes, belongs to (i, j)."""
    row, column, ii, jj = i // 32, j // 32, i % 32, j % 32
    lane = jj + 32 * ((ii % 16) // 8)
    byte = 8 * (ii // 16) + ii % 8
    counter = (offset + batch_head * 64 + lane) % 2**64
    words = plain_philox([counter & 0xFFFFFFFF, counter >> 32, row, column], [seed % 2**32, (seed % 2**64) >> 32])
    return words[byte // 4] >> 8 * (byte % 4) & 0xFF


@pytest.mark.parametrize(("seed", "offset"), [(1, 2), (2**62 + 12345, 2**33 - 70), (-5, -3)])
def test_the_map_is_that_of_ck(seed: int, offset: int) -> None:
    batch, heads, seqlen_q, seqlen_k = 2, 3, 35, 66
    got = dropout.random_map(torch.tensor([seed, offset]), batch, heads, seqlen_q, seqlen_k)
    assert got.shape == (batch, heads, seqlen_q, seqlen_k)
    assert got.dtype == torch.uint8
    generator = torch.Generator().manual_seed(0)
    for _ in range(300):
        b, h, i, j = (int(torch.randint(n, (1,), generator=generator)) for n in got.shape)
        assert got[b, h, i, j] == plain_byte(seed, offset, b * heads + h, i, j), (b, h, i, j)


def test_a_larger_map_holds_the_smaller_one() -> None:
    """A weight's byte depends on its place alone: also for other lengths, and with one batch entry in place of two."""
    state = torch.tensor([7, 8])
    large = dropout.random_map(state, 2, 2, 100, 70)
    assert torch.equal(dropout.random_map(state, 1, 2, 41, 33)[0], large[0, :, :41, :33])


@pytest.mark.parametrize(("p", "limit"), [(0.17, 211), (0.25, 191), (0.5, 127), (0.001, 254), (0.0, 255)])
def test_limits(p: float, limit: int) -> None:
    """floor(255 * (1 - p)), as in upstream's tests: 0.17 keeps 212 of 256 values."""
    assert dropout.keep_limit(p) == limit


def test_states_follow_torchs_generator() -> None:
    torch.manual_seed(3)
    first, second = dropout.draw_rng_state(torch.empty(0)), dropout.draw_rng_state(torch.empty(0))
    torch.manual_seed(3)
    assert torch.equal(dropout.draw_rng_state(torch.empty(0)), first)
    assert not torch.equal(first, second)
    assert first.dtype == torch.int64
    assert first.shape == (2,)
