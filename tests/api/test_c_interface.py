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
        ("fa_rocm_describe(None, 9)", "fa_rocm_describe: the buffer is NULL, but its size is 9"),
        ("fa_rocm_launch_counts(None, 9)", "fa_rocm_launch_counts: the buffer is NULL, but its size is 9"),
    ],
)
def test_unusable_pointers_are_errors(run_fake: RunFake, call: str, message: str) -> None:
    program = f"{SETUP}before = ops.read_json('fa_rocm_describe')\nprint(library.{call}, ops.last_error(library))\n"
    run = run_fake(program + "assert ops.read_json('fa_rocm_describe') == before\n")
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith(f"-1 {message}")


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
