"""Reading records and metadata of code objects, on hand-made files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ck.code_object import read_arg_names, read_code_object
from ck.errors import CodeObjectError
from tests.unit.fake_code_object import FakeKernel, make_code_object

NAMES = read_arg_names()
# Offsets clang gave CK's dropout kernel: the tail padding of one base class holds the next one's first field, so a
# hand-copied struct would have rp_undrop at 148.
DROPOUT_ARGS = {
    "q_ptr": (0, 8),
    "is_drop_seed_offset_from_host": (144, 1),
    "rp_undrop": (152, 4),
    "batch_stride_randval": (176, 4),
    "batch_stride_q": (180, 4),
}
DROPOUT = FakeKernel("dropout", kargs_bytes=216, args=DROPOUT_ARGS)


def write(tmp_path: Path, *kernels: FakeKernel, names: tuple[str, ...] = NAMES) -> Path:
    path = tmp_path / "unit.co"
    path.write_bytes(make_code_object(kernels, names))
    return path


def test_argument_list_has_each_name_once_of_all_kernels() -> None:
    assert len(NAMES) == len(set(NAMES)) == 104
    assert NAMES[:5] == ("q_ptr", "k_ptr", "v_ptr", "o_ptr", "seqlen_q")


def test_arguments_are_found_by_name_and_absent_ones_left_out(tmp_path: Path) -> None:
    image = read_code_object(write(tmp_path, DROPOUT))["dropout"]
    assert image.args == DROPOUT_ARGS


def test_registers_and_sizes_come_from_the_metadata(tmp_path: Path) -> None:
    image = read_code_object(write(tmp_path, FakeKernel("k")))["k"]
    assert (image.vgprs, image.sgprs, image.lds_bytes, image.scratch_bytes) == (146, 96, 6656, 64)
    # A kernel with a mask reads hidden arguments, 256 bytes after its own.
    assert (image.kargs_bytes, image.kernarg_bytes) == (160, 416)


def test_several_kernels_of_one_file_keep_their_own_records(tmp_path: Path) -> None:
    images = read_code_object(write(tmp_path, FakeKernel("a"), DROPOUT, FakeKernel("b", tile=(64, 32, 128, 128))))
    assert set(images) == {"a", "dropout", "b"}
    assert (images["a"].tile_n, images["b"].tile_n, images["dropout"].kargs_bytes) == (64, 32, 216)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (replace(DROPOUT, by_value_bytes=208), r"takes .208. bytes by value, its record says 216"),
        (replace(DROPOUT, magic=0x12345678), "magic 0x12345678"),
        (replace(DROPOUT, version=2), "version 2"),
        (replace(DROPOUT, args={"q_ptr": (212, 8)}), "argument outside its 216 bytes"),
    ],
)
def test_records_that_contradict_the_compiler_are_rejected(tmp_path: Path, kernel: FakeKernel, message: str) -> None:
    with pytest.raises(CodeObjectError, match=message):
        read_code_object(write(tmp_path, kernel))


def test_record_of_another_argument_list_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(CodeObjectError, match=r"kernel_args\.def has 104 names"):
        read_code_object(write(tmp_path, DROPOUT, names=NAMES[:-1]))


def test_other_files_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "x.co"
    path.write_bytes(b"not a code object")
    with pytest.raises(CodeObjectError, match=r"x\.co: not an ELF file"):
        read_code_object(path)
