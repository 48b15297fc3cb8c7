"""The C functions refuse what they cannot use, with a text, whatever pointer they are given."""

from __future__ import annotations

import pytest

from tests.api.conftest import RunFake

SETUP = """
import ctypes
from flash_attn_rocm import ops
library = ops.load()
paths = (ctypes.c_char_p * 2)(b"/x", None)
"""


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("fa_rocm_use_hip_library(None)", "fa_rocm_use_hip_library: the path is NULL; expected a path"),
        ("fa_rocm_use_hip_library(b'')", "fa_rocm_use_hip_library: the path is empty; expected a path"),
        ("fa_rocm_add_kernel_path(None)", "fa_rocm_add_kernel_path: the path is NULL; expected a path"),
        ("fa_rocm_add_kernel_path(b'')", "fa_rocm_add_kernel_path: the path is empty; expected a path"),
        ("fa_rocm_set_kernel_paths(None, 1)", "fa_rocm_set_kernel_paths: the list is NULL, but its length is 1"),
        ("fa_rocm_set_kernel_paths(paths, 2)", "fa_rocm_set_kernel_paths: the path is NULL; expected a path"),
        ("fa_rocm_choose_num_splits(1, 1, 1, 1, 0, 1)", "fa_rocm_choose_num_splits: tile_m is 0"),
        ("fa_rocm_describe(None, 9)", "fa_rocm_describe: the buffer is NULL, but its size is 9"),
        ("fa_rocm_launch_counts(None, 9)", "fa_rocm_launch_counts: the buffer is NULL, but its size is 9"),
    ],
)
def test_unusable_pointers_are_errors(run_fake: RunFake, call: str, message: str) -> None:
    program = f"{SETUP}before = ops.read_json('fa_rocm_describe')\nprint(library.{call}, ops.last_error(library))\n"
    run = run_fake(program + "assert ops.read_json('fa_rocm_describe') == before\n")
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith(f"-1 {message}")


def test_the_name_of_a_gpu_need_not_be_text(run_fake: RunFake) -> None:
    program = SETUP + "import json\nprint(json.loads(ops.read_json('fa_rocm_describe'))['devices'][0]['name'])"
    run = run_fake(program, FAKE_HIP_NAME="Card \udcff 9")
    assert run.stdout == "Card \\xff 9\n", run.stderr


def test_size_zero_asks_for_the_length(run_fake: RunFake) -> None:
    program = f"{SETUP}print(library.fa_rocm_describe(None, 0) == len(ops.read_json('fa_rocm_describe')))"
    assert run_fake(program).stdout == "True\n"


def test_the_list_of_kernel_paths_is_replaced(run_fake: RunFake) -> None:
    program = f"""{SETUP}
import json
def paths_now():
    return json.loads(ops.read_json("fa_rocm_describe"))["kernel_paths"]
two = (ctypes.c_char_p * 2)(b"/a", b"/b")
print(library.fa_rocm_set_kernel_paths(two, 2), paths_now())
print(library.fa_rocm_add_kernel_path(b"/c"), library.fa_rocm_add_kernel_path(b"/a"), paths_now())
print(library.fa_rocm_set_kernel_paths(None, 0), paths_now())
"""
    run = run_fake(program)
    assert run.stdout.splitlines() == ["0 ['/a', '/b']", "0 0 ['/a', '/b', '/c']", "0 []"], run.stderr


# (batch, heads that have tiles of their own, seqlen_q, seqlen_k) -> parts, on 32 multiprocessors with tiles of 64 rows.
# 128 workgroups fill that GPU (4 a multiprocessor), and a part has 256 keys or more.
SPLITS = {
    (1, 8, 1, 8192): 16,  # decode, batch 1: 8 workgroups, 16 parts fill the GPU
    (1, 8, 1, 2048): 8,  # as many as there are keys for
    (1, 8, 1, 300): 1,  # too few keys to cut
    (4, 8, 1, 32768): 4,
    (16, 8, 1, 32768): 1,  # full without
    (1, 1, 1, 1 << 20): 128,
    (9, 8, 1, 8192): 3,  # 72 workgroups leave 44 % idle; 3 rounds' worth fill two rounds to 84 %
    (1, 32, 4096, 4096): 1,  # prefill
    (1, 8, 64, 8192): 16,  # one tile of queries, as a few tokens of speculation
    (1, 8, 65, 8192): 8,
    (0, 8, 1, 8192): 1,
    (1, 8, 0, 8192): 1,
}


def test_decode_really_splits(run_fake: RunFake) -> None:
    """Upstream's heuristic always says 1 with CK (its number of key blocks is computed from the head dim)."""
    program = f"""{SETUP}
for problem in {list(SPLITS)!r}:
    print(library.fa_rocm_choose_num_splits(*problem, 64, 32))
"""
    run = run_fake(program)
    assert dict(zip(SPLITS, map(int, run.stdout.split()), strict=True)) == SPLITS, run.stderr


def test_splits_stay_in_range_and_fill_no_less(run_fake: RunFake) -> None:
    program = f"""{SETUP}
import random
random.seed(1)
for _ in range(3000):
    batch, heads, rows, keys, units = (random.choice([1, 2, 3, 5, 8, 17, 64, 300]) for _ in range(5))
    splits = library.fa_rocm_choose_num_splits(batch, heads, rows, 100 * keys, 64, units)
    assert 1 <= splits <= 128, splits
    assert splits == 1 or splits * 256 <= 100 * keys
    workgroups = batch * heads * -(-rows // 64)
    full = lambda n: n / (-(-n // (4 * units)) * 4 * units)
    assert full(workgroups * splits) >= full(workgroups) - 1e-9, (batch, heads, rows, keys, units, splits)
"""
    assert run_fake(program).returncode == 0
