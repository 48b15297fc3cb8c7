"""What `flash-attn-rocm tune` decides from times, and the file that it writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from flash_attn_rocm import policy
from flash_attn_rocm.benchmark.problem import Problem
from flash_attn_rocm.benchmark.tuning import Decision, decide, disagreeing
from flash_attn_rocm.errors import PolicyFileError

SHAPES = [Problem(1024), Problem(4096)]


def decided(times: list[tuple[float, float]], table: str = "ck") -> Decision:
    """The decision from milliseconds of CK and of torch on each shape."""
    return decide("forward", table, [(p, *t) for p, t in zip(SHAPES, times, strict=False)], "card")


@pytest.mark.parametrize(
    ("times", "table", "backend", "text"),
    [
        ([(1.0, 2.0), (2.0, 4.0)], "sdpa", "ck", "ck is 2.00 times as fast as sdpa over 2 shapes (2.00 to 2.00"),
        ([(5.0, 1.0)], "ck", "sdpa", "ck is 0.20 times as fast as sdpa over 1 shape;"),
        # Geometric means: sqrt(4 * 0.5) and sqrt(4 * 0.2).
        ([(1.0, 4.0), (2.0, 1.0)], "sdpa", "ck", "ck is 1.41 times as fast as sdpa over 2 shapes (0.50 to 4.00 among"),
        ([(1.0, 4.0), (5.0, 1.0)], "ck", "sdpa", "ck is 0.89 times"),
        (
            [(1.0, 1.02)],
            "sdpa",
            "sdpa",
            "ck is 1.02 times as fast as sdpa over 1 shape, under 3%: the table stands; card",
        ),
        ([(1.02, 1.0)], "ck", "ck", "the table stands"),
        ([(1.0, 1.04)], "sdpa", "ck", "ck is 1.04 times as fast as sdpa over 1 shape; card"),
    ],
)
def test_the_faster_backend_runs(times: list[tuple[float, float]], table: str, backend: str, text: str) -> None:
    found = decided(times, table)
    assert found.backend == backend
    assert text in found.evidence
    assert [(row["ck_ms"], row["sdpa_ms"]) for row in found.measured] == times


def test_shapes_that_the_other_backend_runs_faster_are_named() -> None:
    assert disagreeing(decided([(1.0, 4.0), (2.0, 1.0)])) == ["bf16 b1 s4096 h16 d128"]
    assert disagreeing(decided([(1.0, 4.0), (1.01, 1.0)])) == []


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    """Among them characters that TOML must escape; what another run wrote stays."""
    path = tmp_path / "config" / "policy.toml"
    hard = 'a "quoted" \\ back\nslash, tab\t, ü and 🙂'
    tables = {
        ("gfx1201", "forward"): decided([(1.0, 2.0), (3.0, 2.0)]).as_table(),
        ("gfx1100", "backward"): {"backend": "sdpa", "evidence": hard, "measured": []},
    }
    policy.write(path, tables)
    assert policy.read(path) == tables
    assert [entry.name for entry in path.parent.iterdir()] == ["policy.toml"]
    tables["gfx1201", "backward"] = {"backend": "ck", "evidence": ""}
    policy.write(path, tables)
    assert policy.read(path) == tables


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PolicyFileError, match="cannot be written"):
        policy.write(tmp_path / "file" / "policy.toml", {})
