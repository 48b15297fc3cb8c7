"""Are the tests of kernels sharp enough? Random single-operand mutations must be noticed where they change a result."""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ck.golden import find_golden
from scripts.buildlib.cache_root import cache_root
from tests.isa.aiter_kernels import FORMATS, Mask
from tests.isa.aiter_kernels import Problem as Golden
from tests.isa.attention import Case, plain_kernels
from tests.isa.conftest import DEVICES
from tests.isa.hip_runtime import Hip
from tests.isa.listings import listing_file
from tests.isa.mutation import Bench, CkBench, Mutant, Problem, mutate
from tests.isa.mutation_aiter import AiterBench

KERNELS = {"bf16-masked": ("bf16", True, "seqlen"), "fp16-plain": ("fp16", False, "none")}
PLAIN = [
    Problem(Case(64, 64, heads=1, heads_k=1), "peaked"),
    Problem(Case(128, 128, heads=2, heads_k=1, batch=2), "level"),
    Problem(Case(128, 192, heads=2, heads_k=2), "random"),
]
MASKED = [
    Problem(Case(70, 50, heads=1, heads_k=1, right=0), "peaked"),
    Problem(Case(100, 160, heads=2, heads_k=1, batch=2, left=31, right=0), "level"),
    Problem(Case(65, 130, heads=2, heads_k=2, left=20, right=7), "random"),
    Problem(Case(40, 200, heads=1, heads_k=1, right=0), "random"),
]
REQUIRED = 0.95
INSTRUCTIONS_OF_A_WAVE = 400_000  # ten times what the largest problem needs: an endless loop is a fault


def measure(bench: Bench, count: int, seed: int) -> tuple[collections.Counter[str], list[str]]:
    """Outcomes of `count` mutants that could be loaded, and the undetected ones."""
    for number, result in enumerate(bench.expected):
        assert bench.passes(number, *result), f"the kernel itself fails problem {number}"
    draw = random.Random(seed)
    outcomes: collections.Counter[str] = collections.Counter()
    undetected = []
    number = 0
    while sum(outcomes.values()) - outcomes["refused"] < count:
        number += 1
        mutant = mutate(bench.lines, bench.limits, draw)
        outcome = bench.judge(mutant, number)
        outcomes[outcome] += 1
        if outcome == "undetected":
            undetected.append(str(mutant))
    return outcomes, undetected


def prepare(hip: Hip, emulator: Path, manifest: tuple[Path, dict[str, Any]], chosen: str, cache: Path) -> Bench:
    directory, contents = manifest
    dtype, masked, padding = KERNELS[chosen]
    kernel = next(
        k
        for k in plain_kernels(contents)
        if (k["dtype"], k["mask"], k["padding"], k["hdim_q"]) == (dtype, masked, padding, 64)
    )
    path = directory / contents["code_objects"][kernel["code_object"]]["file"]
    listing = (emulator / "decoded" / f"{hashlib.sha256(path.read_bytes()).hexdigest()}.txt").read_text()
    return CkBench(hip, path, kernel, MASKED if masked else PLAIN, listing, cache)


def check(chosen: str, outcomes: collections.Counter[str], undetected: list[str]) -> None:
    detected = outcomes["fault"] + outcomes["exceeded"]
    changed = detected + outcomes["undetected"]
    rate = detected / max(1, changed)
    report = f"{chosen}: {detected} of {changed} mutations that change a result are detected ({rate:.1%}), "
    report += f"{outcomes['fault']} of them by a fault; "
    report += f"{outcomes['same']} change nothing, {outcomes['refused']} cannot be loaded"
    print("\n".join([report, *undetected]))
    assert changed >= sum(outcomes.values()) // 4, report
    assert rate >= REQUIRED, "\n".join([report, *undetected])


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLASH_ATTN_ROCM_CACHE", str(tmp_path))
    monkeypatch.setenv("FLASH_ATTN_ROCM_EMULATOR_INSTRUCTION_LIMIT", str(INSTRUCTIONS_OF_A_WAVE))
    return tmp_path


def test_judgements(hip: Hip, emulator: Path, ck_manifest: tuple[Path, dict[str, Any]], cache: Path) -> None:
    """The listing as it is changes nothing; wrong operands exceed the bound or fault; no shape, no kernel."""
    bench = prepare(hip, emulator, ck_manifest, "fp16-plain", cache)

    def becomes(pattern: str, replacement: str) -> str:
        index, line = next((i, line) for i, line in enumerate(bench.lines) if re.search(pattern, line.text))
        changed = dataclasses.replace(line, text=re.sub(pattern, replacement, line.text))
        return bench.judge(Mutant(index, changed, line.text), index)

    assert becomes(r"^v_wmma", "v_wmma") == "same"
    assert becomes(r"^(v_wmma\w+ v\[\S+ \S+) \S+, (v\[\S+)$", r"\1 v[0:3], \2") in ("exceeded", "fault")
    assert becomes(r"^s_load_b64 (\S+) s\[0:1\]", r"s_load_b64 \1 s[6:7]") == "fault"
    assert becomes(r"^v_exp_f32_e32", "v_nonsense") == "refused"


@pytest.mark.parametrize("chosen", KERNELS)
def test_mutations_are_detected(
    chosen: str, hip: Hip, emulator: Path, ck_manifest: tuple[Path, dict[str, Any]], cache: Path
) -> None:
    check(chosen, *measure(prepare(hip, emulator, ck_manifest, chosen, cache), 60, seed=1))


@pytest.mark.wide
@pytest.mark.parametrize("chosen", KERNELS)
def test_many_mutations_are_detected(
    chosen: str, hip: Hip, emulator: Path, ck_manifest: tuple[Path, dict[str, Any]], cache: Path
) -> None:
    check(chosen, *measure(prepare(hip, emulator, ck_manifest, chosen, cache), 500, seed=2))


GOLDEN = "fwd_hd128_bf16_causal_rtne"
BF16 = FORMATS["bf16"]
CAUSAL = Mask(right=0, bottom_right=True)
GOLDEN_PROBLEMS = [
    Golden(BF16, (64,), (64,), heads=1, heads_k=1, mask=CAUSAL, q_factor=40.0),
    Golden(BF16, (100, 100), (160, 160), heads=2, heads_k=1, mask=CAUSAL, q_factor=0.0, integer_v=True),
    Golden(BF16, (300,), (330,), heads=1, heads_k=1, mask=CAUSAL, q_factor=2.0),
]


@pytest.fixture(scope="module")
def golden() -> Path:
    """A kernel of AMD's for gfx942."""
    directory = find_golden(cache_root())
    if directory is None:
        pytest.fail("the golden kernels are not there; run `./pixiw run fetch-ck`, then `./pixiw run build`")
    return directory / "gfx942" / f"{GOLDEN}.co"


@pytest.fixture
def golden_bench(hip: Hip, golden: Path, cache: Path) -> Iterator[AiterBench]:
    """Its listing is the one that the emulator makes when it is loaded."""
    hip.call("hipSetDevice", DEVICES.index("gfx942"))
    hip.load(golden.read_bytes())
    listing = listing_file(cache / "decoded", golden.read_bytes()).read_text()
    yield AiterBench(hip, golden, GOLDEN_PROBLEMS, listing, cache)
    hip.call("hipSetDevice", 0)


def test_mutations_of_a_golden_kernel_are_detected(golden_bench: AiterBench) -> None:
    check(GOLDEN, *measure(golden_bench, 60, seed=1))


@pytest.mark.wide
def test_many_mutations_of_a_golden_kernel_are_detected(golden_bench: AiterBench) -> None:
    check(GOLDEN, *measure(golden_bench, 500, seed=2))
