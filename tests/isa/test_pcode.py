"""Every vector and scalar ALU instruction of the emulator against AMD's pseudo-code, on special and random operands."""

from __future__ import annotations

import dataclasses
import fnmatch
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.isa.conftest import DEVICES
from tests.isa.fuzz_rows import Row, load_rows, other_rows
from tests.isa.hip_runtime import Hip
from tests.isa.pcode import softfloat
from tests.isa.pcode.evaluate import Compiler
from tests.isa.pcode.tables import MODULES, load_entries
from tests.isa.pcode_fuzz import SAMPLES, Samples, draw, evaluate, run_kernel
from tests.isa.pcode_rules import FILE, Rules, flushed, load_rules, same

ROOT = Path(__file__).resolve().parents[2]
TABLES = {table.stem: table for table in sorted((ROOT / "emulator/isa").glob("gfx*.toml"))}
RULES = load_rules()


@pytest.fixture(autouse=True)
def first_device_again(hip: Hip) -> Iterator[None]:
    yield
    hip.call("hipSetDevice", 0)


@dataclasses.dataclass(frozen=True)
class Family:
    """What a comparison needs: the emulated GPU with its kernels, and the pseudo-code as it is and as amended."""

    hip: Hip
    code_object: Path
    wave_size: int
    original: Compiler
    amended: Compiler


def prepare(name: str, hip: Hip, isa_kernels: Path) -> Family:
    archs = [tomllib.loads(path.read_text()) for path in (ROOT / "src/flash_attn_rocm/archs").glob("gfx*.toml")]
    gpus = sorted(arch["gfx"] for arch in archs if arch["family"] == name)
    found = [gpu for gpu in gpus if gpu in DEVICES and (isa_kernels / f"{gpu}_fuzz.co").exists()]
    if not found:
        pytest.fail(f"no fuzz kernels in {isa_kernels} of a GPU of {name} among {DEVICES}: it needs a target.inc")
    hip.call("hipSetDevice", DEVICES.index(found[-1]))
    entries = load_entries(name)
    wave_size = tomllib.loads(TABLES[name].read_text())["machine"]["wave_size"]
    texts = {entry: RULES.text(entry, text) for entry, text in entries.items()}
    return Family(hip, isa_kernels / f"{found[-1]}_fuzz.co", wave_size, Compiler(entries), Compiler(texts))


def flush_samples(samples: Samples, row: Row) -> Samples:
    sources = [
        np.array([flushed(int(raw)) for raw in data], np.uint64) if kind == "f32" else data
        for kind, data in zip(row.sources, samples.sources, strict=True)
    ]
    return dataclasses.replace(samples, sources=sources)


def differing(family: Family, row: Row, rules: Rules, compiler: Compiler) -> list[str]:
    """Descriptions of the samples on which emulator and pseudo-code differ under the rules."""
    samples, packed = draw(row), row.name in rules.packed
    rule = rules.tolerance.get(row.name, {})
    lines = []
    for kernel, result in row.kernels:
        got = run_kernel(family.hip, family.code_object, row, kernel, result, samples, family.wave_size)
        given = flush_samples(samples, row) if rule.get("flush") else samples
        entry = row.name if row.name in compiler.entries else rules.renamed.get(row.name, row.name)
        expected = evaluate(compiler, entry, row, result, given, family.wave_size)
        for index in range(SAMPLES):
            want = flushed(expected[index]) if rule.get("flush") and result == "d" else expected[index]
            if not same(row, result, int(got[index]), want, packed, rule.get("ulps", 0)):
                operands = [hex(int(data[index])) for data in samples.sources]
                lines.append(
                    f"{kernel} {operands}, old {int(samples.old[index]):#x}, flag {samples.flag[index]}: "
                    f"emulator {int(got[index]):#x}, pseudo-code {want:#x}"
                )
    return lines


def compared_rows(table: Path) -> list[Row]:
    return [row for row in load_rows(table) if not RULES.excuses(row.name)]


@pytest.mark.parametrize("name", TABLES)
def test_every_operation(name: str, hip: Hip, isa_kernels: Path) -> None:
    """All rows of the family's table, several hundred samples each; every difference is listed."""
    family = prepare(name, hip, isa_kernels)
    rows = compared_rows(TABLES[name])
    failures = []
    for row in rows:
        if lines := differing(family, row, RULES, family.amended):
            failures.append(f"{row.name}: {len(lines)} differ\n  " + "\n  ".join(lines[:3]))
    assert not failures, "\n".join(failures)
    kernels = sum(len(row.kernels) for row in rows)
    print(f"{name}: {len(rows)} operations compared, {kernels} results of {SAMPLES} samples each")


@pytest.mark.parametrize("name", TABLES)
def test_every_row_is_compared_or_excused(name: str) -> None:
    """A row of the vector or scalar ALU without a fuzz kernel needs a reason."""
    rows = {row.name for row in load_rows(TABLES[name])}
    assert sorted(row for row in other_rows(TABLES[name]) if not RULES.excuses(row)) == []
    assert len(rows) > 250


def test_every_reason_is_needed() -> None:
    """Names in the file are instructions of some family."""
    known = {name for family in MODULES for name in load_entries(family)}
    known |= {row.name for table in TABLES.values() for row in load_rows(table)}
    known |= {name for table in TABLES.values() for name in other_rows(table)}
    named = {*RULES.amended, *RULES.tolerance, *RULES.packed, *RULES.renamed.values()}
    assert named - known == set(), f"{FILE.name} names instructions that no table has"
    assert [pattern for pattern in RULES.not_compared if not fnmatch.filter(known, pattern)] in ([], ["v_accvgpr_*"])


@pytest.mark.parametrize("name", TABLES)
def test_every_difference_still_differs(name: str, hip: Hip, isa_kernels: Path) -> None:
    """Without its entry, each instruction of pcode_differences.toml would fail: no entry hides more than it says."""
    family = prepare(name, hip, isa_kernels)
    for row in compared_rows(TABLES[name]):
        entry = row.name if row.name in family.original.entries else RULES.renamed.get(row.name, row.name)
        if entry in RULES.amended:
            assert differing(family, row, RULES, family.original), f"[amended.{entry}] makes no difference"
        if row.name in RULES.tolerance:
            for key in {"ulps", "flush"} & set(RULES.tolerance[row.name]):
                rule = {k: v for k, v in RULES.tolerance[row.name].items() if k != key}
                less = dataclasses.replace(RULES, tolerance={**RULES.tolerance, row.name: rule})
                assert differing(family, row, less, family.amended), f"[tolerance.{row.name}] {key} makes no difference"
        if row.name in RULES.packed:
            less = dataclasses.replace(RULES, packed=frozenset())
            assert differing(family, row, less, family.amended), f"[packed] {row.name} makes no difference"


def test_softfloat_rounds_as_ieee() -> None:
    """The second implementation's own arithmetic against numpy's, on the values where rounding is hard."""
    generator = np.random.default_rng(3)
    raw = generator.integers(0, 2**32, (2, 2000), np.uint64).astype(np.uint32)
    a, b = raw.view(np.float32)
    fmt = softfloat.FORMATS["f32"]
    with np.errstate(all="ignore"):
        wanted = {
            softfloat.add: a + b,
            softfloat.multiply: a * b,
            softfloat.divide: a / b,
        }
        half = a.astype(np.float16)
    for function, results in wanted.items():
        for x, y, z in zip(raw[0], raw[1], results, strict=True):
            got = function(fmt, int(x), int(y))
            assert got == int(z.view(np.uint32)) or (np.isnan(z) and softfloat.is_nan(fmt, got))
    for x, z in zip(raw[0], half, strict=True):
        got = softfloat.convert(fmt, int(x), softfloat.FORMATS["f16"])
        assert got == int(z.view(np.uint16)) or (np.isnan(z) and softfloat.is_nan(softfloat.FORMATS["f16"], got))
