"""Output that goes into a pipe or a file is as wide as its tables: nothing is cut."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

from flash_attn_rocm.archs import load_archs
from flash_attn_rocm.benchmark import compare, report
from flash_attn_rocm.cli.verify import results_table
from flash_attn_rocm.console import make_console
from flash_attn_rocm.verification.cases import Case
from flash_attn_rocm.verification.profile import profile_table
from flash_attn_rocm.verification.worker import Result
from scripts import toolchain
from scripts.buildlib.kernel_sizes import make_size_table
from scripts.buildlib.kernel_tables import make_plan_table, make_report_table
from scripts.buildlib.kernels import KernelRequest, plan_request
from scripts.buildlib.toolchain import Candidate
from tests.unit.test_benchmark import document

ROOT = Path(__file__).parents[2]
KERNEL = "fmha_bwd_gfx1201_bf16_d128_m32n64w8_causal_alibi_dropout_deterministic_group_pseqlen_and_more"
COUNTS = {"launches": 1, **{f"class {n}": 10**12 for n in range(12)}}
CASE = Case("bf16", 128, 1234, 5678, heads=64, heads_k=8, causal=True, mode="cache", page=128, alibi=True, softcap=4.0)


def kernel_report() -> dict[str, object]:
    """One kernel as `kernels --report --json` describes it."""
    numbers = ("vgprs", "vgpr_spills", "sgprs", "sgpr_spills", "scratch_bytes", "lds_bytes")
    row = {"name": KERNEL, "code_object": "a.co", "main_loop": {"scratch": 12345}, **dict.fromkeys(numbers, 65536)}
    return {"compiler": "clang", "code_objects": {"a.co": 123456789}, "kernels": [row]}


def plan_table() -> Table:
    request = KernelRequest(profile="full", archs=(load_archs()["gfx1201"],), out=Path("nowhere"))
    return make_plan_table(plan_request(request), 2)


TABLES: dict[str, Callable[[], list[Table]]] = {
    "verify": lambda: [results_table([Result(CASE, "passed", error=1e-3, allowed=1e-2, time_s=1234.5)])],
    "verify --profile": lambda: [profile_table({KERNEL: COUNTS})],
    "bench": lambda: [table for _, table in report.tables(document())],
    "bench --compare": lambda: [compare.compare(document(), document(2.0, gpu="Radeon AI PRO R9700" * 2))],
    "kernels --dry-run": lambda: [plan_table()],
    "kernels --report": lambda: [make_report_table([kernel_report()])],
    "toolchain": lambda: [toolchain.make_table([Candidate("conda", "/opt/here", {"clang": "22.1.8"}, "none", "")])],
}


@pytest.fixture(autouse=True)
def _of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def check_whole(table: Table, printed: str) -> None:
    """Every cell is there on one line, or its lines are."""
    assert "…" not in printed
    cells = [str(cell) for column in table.columns for cell in (column.header, *column.cells, column.footer)]
    for text in cells:
        for line in Text.from_markup(text).plain.splitlines():
            assert line in printed


@pytest.mark.parametrize("command", TABLES)
def test_tables_in_a_pipe_are_whole(capsys: pytest.CaptureFixture[str], command: str) -> None:
    for table in TABLES[command]():
        make_console().print(table)
        check_whole(table, capsys.readouterr().out)


def test_sizes_in_a_pipe_are_whole(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "gfx1201").mkdir()
    manifest = {"profile": "a_profile_of_some_length", "kernels": [], "code_objects": []}
    (tmp_path / "gfx1201" / "kernels.json").write_text(json.dumps(manifest), encoding="utf-8")
    table = make_size_table(tmp_path, ["gfx1201"])
    make_console().print(table)
    check_whole(table, capsys.readouterr().out)


def test_a_terminal_keeps_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert make_console().width == 80


def test_there_is_no_other_console() -> None:
    """What one prints on by itself is 80 columns wide in a pipe."""
    files = [path for folder in ("src", "scripts") for path in (ROOT / folder).rglob("*.py")]
    others = [p.name for p in files if re.search(r"\bConsole\(|rich\.print\(|\.rule\(", p.read_text(encoding="utf-8"))]
    assert others == ["console.py"]
