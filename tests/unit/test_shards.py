"""Parts of a plan on several machines: nothing twice, nothing left over, merged the same files as from one machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from ck.plan import plan_units
from flash_attn_rocm.archs import load_arch
from scripts import kernels as command
from scripts.buildlib.errors import BadRequestError, BuildError
from scripts.buildlib.jobs import estimate_cpu_s
from scripts.buildlib.shards import Shard, parse_shard, units_of_shard
from tests.unit.conftest import Workshop

COUNT = 3


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "1/", "a/b", "-1/3", "1/0", "1.0/2"])
def test_a_part_that_does_not_exist_is_a_bad_request(text: str) -> None:
    with pytest.raises(BadRequestError, match=r"--shard is .*; allowed: I/N with I from 1 to N, such as 2/5"):
        parse_shard(text)


@pytest.mark.parametrize("count", [1, 2, 7, 99])
def test_parts_are_the_plan_and_nearly_equal(count: int) -> None:
    units = plan_units(load_arch("gfx1201"), "full")
    parts = [units_of_shard(units, parse_shard(f"{index}/{count}")) for index in range(1, count + 1)]
    assert sorted(unit.name for part in parts for unit in part) == [unit.name for unit in units]
    costs = [sum(estimate_cpu_s(unit) for unit in part) for part in parts]
    assert max(costs) - min(costs) <= max(estimate_cpu_s(unit) for unit in units)


def test_the_split_depends_on_the_units_alone() -> None:
    units = plan_units(load_arch("gfx1201"), "full")
    there = {unit.name for unit in units_of_shard(units, Shard(2, COUNT))}
    assert {unit.name for unit in units_of_shard(units[::-1], Shard(2, COUNT))} == there


def _files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def _compile_parts(workshop: Workshop, monkeypatch: pytest.MonkeyPatch, indices: range) -> list[Path]:
    """Each part on a machine of its own: its own cache and directories."""
    outs = []
    for index in indices:
        monkeypatch.setenv("FLASH_ATTN_ROCM_CACHE", str(workshop.root / f"cache-{index}"))
        built = workshop.build(f"part-{index}", shard=Shard(index, COUNT))
        assert not built.cached
        assert not built.manifests
        outs.append(workshop.root / f"part-{index}" / "cache")
    monkeypatch.setenv("FLASH_ATTN_ROCM_CACHE", str(workshop.root / "cache of the last machine"))
    return outs


def test_merged_results_are_those_of_one_machine(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    one = workshop.build("one-machine")
    compiles = workshop.compiles()
    outs = _compile_parts(workshop, monkeypatch, range(1, COUNT + 1))
    assert workshop.compiles() == 2 * compiles
    merged = workshop.build("merged", merge=tuple(outs))
    assert workshop.compiles() == 2 * compiles
    assert (len(merged.cached), len(merged.compiled)) == (compiles, 0)
    assert merged.kernels == one.kernels == 24
    files = _files(workshop.root / "merged" / "gfx1201")
    assert files == _files(workshop.root / "one-machine" / "gfx1201")
    assert "kernels.json" in files
    # The packages' build looks into the same cache and compiles nothing either.
    assert not workshop.build("package").compiled


def test_a_missing_part_is_named_and_not_compiled(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    outs = _compile_parts(workshop, monkeypatch, range(1, COUNT))
    compiles = workshop.compiles()
    with pytest.raises(BuildError, match=r"2 of 4 code objects are in no directory of --merge: fmha_fwd_gfx1201_"):
        workshop.build("merged", merge=tuple(outs))
    assert workshop.compiles() == compiles


def test_results_of_other_sources_are_not_taken(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    outs = _compile_parts(workshop, monkeypatch, range(1, COUNT + 1))
    (workshop.ck.include / "ck_tile" / "core.hpp").write_text("// another core\n")
    with pytest.raises(
        BuildError, match=r"4 of 4 code objects .*or was made from other sources or by another compiler"
    ):
        workshop.build("merged", merge=tuple(outs))


def test_a_directory_that_is_no_part_is_a_bad_request(workshop: Workshop) -> None:
    with pytest.raises(BadRequestError, match=r"--merge is '.*/bin'; allowed: DIR/cache of every `kernels --shard"):
        workshop.build(merge=(workshop.root / "bin",))


def test_more_parts_than_code_objects(workshop: Workshop) -> None:
    assert workshop.build(shard=Shard(9, 9)).kernels == 0


def test_the_command_plans_a_part_and_refuses_both(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = ["--profile", "smoke", "--arch", "gfx1201", "--dry-run"]
    names: list[str] = []
    for index in (1, 2):
        assert command.main([*wanted, "--shard", f"{index}/2"]) == 0
        names += [line.split()[1] for line in capsys.readouterr().out.splitlines() if "_gfx1201_" in line]
    assert sorted(names) == [unit.name for unit in plan_units(load_arch("gfx1201"), "smoke")]
    assert command.main([*wanted, "--shard", "1/2", "--merge", "x"]) == 2
    assert "one of the two" in capsys.readouterr().err
