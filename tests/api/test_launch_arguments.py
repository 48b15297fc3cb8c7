"""What the host library hands to the HIP runtime, byte by byte: kernel, grid, block, arguments, registered memory.

The program below makes every call in one process; each test looks at one of them. Expected values follow from the
documented meaning of CK's arguments, not from the library's code.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from typing import Any

import pytest

from tests.api.conftest import RunFake
from tests.api.fake_runtime import ARGS, KARGS_BYTES, POINTERS, kernel, manifest, standard_kernels

PROGRAM = """
import json, torch
from flash_attn_rocm import flash_attn_func, ops

def t(*shape):
    return torch.randn(shape, dtype=torch.bfloat16)

def call(name, q, k, v, **kwargs):
    out, lse, _ = flash_attn_func(q, k, v, return_attn_probs=True, **kwargs)
    pointers = {"q_ptr": q, "k_ptr": k, "v_ptr": v, "o_ptr": out, "lse_ptr": lse}
    record = {key: tensor.data_ptr() for key, tensor in pointers.items()}
    if out.numel() and not k.shape[1]:
        record["zero"] = bool((out == 0).all())
        record["lse_neginf"] = bool(torch.isneginf(lse).all())
    launched = sum(json.loads(ops.read_json("fa_rocm_launch_counts")).values())
    print(json.dumps({"name": name, "launched": launched, **record}))

ops.load()
call("ragged gqa", t(2, 70, 4, 64), t(2, 33, 2, 64), t(2, 33, 2, 64), softmax_scale=0.25)
call("whole tiles", t(1, 128, 2, 64), t(1, 96, 2, 64), t(1, 96, 2, 64))
call("causal", t(3, 65, 6, 128), t(3, 100, 2, 128), t(3, 100, 2, 128), causal=True)
call("window", t(1, 64, 2, 64), t(1, 64, 2, 64), t(1, 64, 2, 64), window_size=(5, 7))
call("wide window", t(1, 64, 2, 64), t(1, 64, 2, 64), t(1, 64, 2, 64), window_size=(63, 63))
call("narrowest hiding window", t(1, 64, 2, 64), t(1, 64, 2, 64), t(1, 64, 2, 64), window_size=(62, 63))
call("one causal query", t(1, 1, 2, 64), t(1, 64, 2, 64), t(1, 64, 2, 64), causal=True)
call("padded head dim", t(1, 64, 2, 72), t(1, 64, 2, 72), t(1, 64, 2, 72))
qkv = t(2, 50, 3, 4, 64)
call("packed", qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2])
call("heads first", *(t(2, 4, 50, 64).transpose(1, 2) for _ in range(3)))
call("strided head dim", t(1, 50, 2, 128)[..., ::2], t(1, 50, 2, 64), t(1, 50, 2, 64))
call("misaligned", t(1, 50, 2, 65)[..., 1:], t(1, 50, 2, 64), t(1, 50, 2, 64))
call("misaligned padded", t(1, 50, 2, 41)[..., 1:], t(1, 50, 2, 40), t(1, 50, 2, 40))
call("expanded", t(1, 50, 1, 64).expand(3, 50, 4, 64), t(3, 50, 4, 64), t(3, 50, 4, 64))
call("no keys", t(1, 5, 2, 64), t(1, 0, 2, 64), t(1, 0, 2, 64))
call("no queries", t(1, 0, 2, 64), t(1, 5, 2, 64), t(1, 5, 2, 64))
call("no batch", t(0, 5, 2, 64), t(0, 5, 2, 64), t(0, 5, 2, 64))
"""

PREAMBLE = PROGRAM.split("ops.load()")[0]

SCALES = {"ragged gqa": 0.25}


@dataclass(frozen=True)
class Launch:
    """One call of the program: the pointers it printed and the launch it caused, if any."""

    pointers: dict[str, Any]
    log: dict[str, Any] | None
    registered: dict[int, int]


@pytest.fixture(scope="module")
def calls(run_fake: RunFake) -> dict[str, Launch]:
    run = run_fake(PROGRAM)
    assert run.returncode == 0, run.stderr
    records = [json.loads(line) for line in run.stdout.splitlines()]
    launches = iter(run.launches())
    ranges: list[dict[int, int]] = [{}]
    for entry in run.calls:
        if entry["call"] == "hipHostRegister":
            ranges[-1][entry["pointer"]] = entry["bytes"]
        elif entry["call"] == "launch":
            ranges.append({})
    result: dict[str, Launch] = {}
    done = 0
    for record in records:
        launched = record["launched"] - done
        assert launched in (0, 1)
        log = next(launches) if launched else None
        result[record["name"]] = Launch(record, log, ranges[done] if launched else {})
        done += launched
    assert next(launches, None) is None
    return result


def decode(launch: Launch) -> dict[str, int | float]:
    """Argument values by name, from the bytes the runtime saw; every other byte must be zero."""
    assert launch.log is not None
    data = bytes.fromhex(launch.log["arguments"])
    assert len(data) == KARGS_BYTES
    values: dict[str, int | float] = {}
    rest = bytearray(data)
    for name, (offset, size) in ARGS.items():
        code = "<f" if name == "scale_s" else {4: "<i", 8: "<q"}[size]
        values[name] = struct.unpack_from(code, data, offset)[0]
        rest[offset : offset + size] = bytes(size)
    assert not any(rest), "bytes outside of every argument are not zero"
    return values


def contiguous(prefix: str, seqlen: int, heads: int, headdim: int) -> dict[str, int]:
    """Strides of a contiguous (batch, seqlen, heads, headdim) tensor, as CK names them."""
    return {
        f"stride_{prefix}": heads * headdim,
        f"nhead_stride_{prefix}": headdim,
        f"batch_stride_{prefix}": seqlen * heads * headdim,
    }


def expect(launch: Launch, *, b: int, sq: int, sk: int, h: int, hk: int, d: int, **changes: int) -> None:
    """Compare the whole argument buffer with the values that contiguous tensors of these extents must give."""
    scale = SCALES.get(launch.pointers["name"], d**-0.5)
    expected: dict[str, int | float] = {
        "seqlen_q": sq,
        "seqlen_k": sk,
        "hdim_q": d,
        "hdim_v": d,
        "num_head_q": h,
        "nhead_ratio_qk": h // hk,
        "scale_s": struct.unpack("<f", struct.pack("<f", scale * math.log2(math.e)))[0],
        **contiguous("q", sq, h, d),
        **contiguous("k", sk, hk, d),
        **contiguous("v", sk, hk, d),
        **contiguous("o", sq, h, d),
        "nhead_stride_lse": sq,
        "batch_stride_lse": h * sq,
        "window_size_left": -1,
        "window_size_right": -1,
        "mask_type": 0,
        **{name: launch.pointers[name] for name in POINTERS},
    }
    if b == 1:  # a single entry is addressed by the pointers alone
        expected |= {f"batch_stride_{tensor}": 0 for tensor in ("q", "k", "v", "o", "lse")}
    assert decode(launch) == expected | changes


def test_grouped_heads_and_ragged_lengths(calls: dict[str, Launch]) -> None:
    launch = calls["ragged gqa"]
    expect(launch, b=2, sq=70, sk=33, h=4, hk=2, d=64)
    assert launch.log is not None
    assert launch.log["kernel"] == "d64_nomask_seqlen"
    assert launch.log["grid"] == [4, 2, 2]  # heads, ceil(70 / 64), batch
    assert launch.log["block"] == [128, 1, 1]
    assert launch.log["shared"] == 0
    assert launch.log["stream"] == 0


def test_whole_tiles_use_the_kernel_without_padding(calls: dict[str, Launch]) -> None:
    launch = calls["whole tiles"]
    expect(launch, b=1, sq=128, sk=96, h=2, hk=2, d=64)
    assert launch.log is not None
    assert launch.log["kernel"] == "d64_nomask_none"
    assert launch.log["grid"] == [2, 2, 1]


def test_causal_is_a_bottom_right_mask_with_right_bound_zero(calls: dict[str, Launch]) -> None:
    launch = calls["causal"]
    expect(launch, b=3, sq=65, sk=100, h=6, hk=2, d=128, window_size_right=0, mask_type=2)
    assert launch.log is not None
    assert launch.log["kernel"] == "d128_mask_seqlen"
    assert launch.log["grid"] == [6, 2, 3]


def test_window_bounds_are_passed_on(calls: dict[str, Launch]) -> None:
    launch = calls["window"]
    expect(launch, b=1, sq=64, sk=64, h=2, hk=2, d=64, window_size_left=5, window_size_right=7, mask_type=2)
    assert launch.log is not None
    assert launch.log["kernel"] == "d64_mask_none"


def test_a_window_that_hides_nothing_needs_no_mask(calls: dict[str, Launch]) -> None:
    for name in ("wide window", "one causal query"):
        launch = calls[name]
        assert launch.log is not None
        assert launch.log["kernel"].startswith("d64_nomask"), name
        assert decode(launch)["mask_type"] == 0


def test_a_window_that_hides_one_key_of_one_query_needs_a_mask(calls: dict[str, Launch]) -> None:
    launch = calls["narrowest hiding window"]
    expect(launch, b=1, sq=64, sk=64, h=2, hk=2, d=64, window_size_left=62, mask_type=2)


def test_smaller_head_dim_uses_the_next_larger_padded_kernel(calls: dict[str, Launch]) -> None:
    launch = calls["padded head dim"]
    expect(launch, b=1, sq=64, sk=64, h=2, hk=2, d=72)
    assert launch.log is not None
    assert launch.log["kernel"] == "d128_nomask_full"


def test_packed_views_are_read_in_place(calls: dict[str, Launch]) -> None:
    strides = {f"stride_{x}": 3 * 4 * 64 for x in "qkv"} | {f"batch_stride_{x}": 50 * 3 * 4 * 64 for x in "qkv"}
    expect(calls["packed"], b=2, sq=50, sk=50, h=4, hk=4, d=64, **strides)


def test_heads_first_views_are_read_in_place(calls: dict[str, Launch]) -> None:
    strides = {f"stride_{x}": 64 for x in "qkv"} | {f"nhead_stride_{x}": 50 * 64 for x in "qkv"}
    expect(calls["heads first"], b=2, sq=50, sk=50, h=4, hk=4, d=64, **strides)


def test_expanded_views_keep_their_zero_strides(calls: dict[str, Launch]) -> None:
    zero = {"nhead_stride_q": 0, "batch_stride_q": 0, "stride_q": 64}
    expect(calls["expanded"], b=3, sq=50, sk=50, h=4, hk=4, d=64, **zero)


@pytest.mark.parametrize("name", ["strided head dim", "misaligned"])
def test_unreadable_layouts_are_copied(calls: dict[str, Launch], name: str) -> None:
    launch = calls[name]
    copied = decode(launch)["q_ptr"]
    assert copied != launch.pointers["q_ptr"]
    assert copied % 16 == 0
    expect(launch, b=1, sq=50, sk=50, h=2, hk=2, d=64, q_ptr=int(copied))
    assert int(copied) in launch.registered


def test_kernels_that_read_single_elements_take_misaligned_rows(calls: dict[str, Launch]) -> None:
    strides = {"stride_q": 2 * 41, "nhead_stride_q": 41}
    expect(calls["misaligned padded"], b=1, sq=50, sk=50, h=2, hk=2, d=40, **strides)


def test_no_keys_launches_nothing_and_gives_zeros(calls: dict[str, Launch]) -> None:
    launch = calls["no keys"]
    assert launch.log is None
    assert launch.pointers["zero"]
    assert launch.pointers["lse_neginf"]


@pytest.mark.parametrize("name", ["no queries", "no batch"])
def test_empty_results_launch_nothing(calls: dict[str, Launch], name: str) -> None:
    assert calls[name].log is None


def test_exactly_the_bytes_of_the_tensors_are_registered(calls: dict[str, Launch]) -> None:
    launch = calls["ragged gqa"]
    sizes = {
        "q_ptr": 2 * 70 * 4 * 64 * 2,
        "k_ptr": 2 * 33 * 2 * 64 * 2,
        "v_ptr": 2 * 33 * 2 * 64 * 2,
        "o_ptr": 2 * 70 * 4 * 64 * 2,
        "lse_ptr": 2 * 4 * 70 * 4,
    }
    wanted = {
        address
        for name, size in sizes.items()
        for address in range(launch.pointers[name], launch.pointers[name] + size)
    }
    got = {address for start, size in launch.registered.items() for address in range(start, start + size)}
    assert got == wanted


def test_views_of_one_buffer_are_registered_once(calls: dict[str, Launch]) -> None:
    launch = calls["packed"]
    start = launch.pointers["q_ptr"]
    assert launch.registered[start] == 2 * 50 * 3 * 4 * 64 * 2


def test_properties_and_code_objects_are_read_once(run_fake: RunFake) -> None:
    program = PREAMBLE + 'for _ in range(5): call("x", t(1, 9, 2, 64), t(1, 9, 2, 64), t(1, 9, 2, 64))'
    run = run_fake(program)
    assert run.returncode == 0, run.stderr
    assert len(run.launches()) == 5
    names = [call["call"] for call in run.calls]
    assert names.count("hipGetDevicePropertiesR0600") == 1
    assert names.count("hipModuleLoadData") == 1
    assert names.count("hipHostRegister") == names.count("hipHostUnregister")


def test_batches_whose_stride_exceeds_32_bits_are_launched_one_by_one(run_fake: RunFake) -> None:
    """k's batch stride is 2**31 + 128 elements; its 4 GiB are allocated but never touched."""
    program = """
import json, torch
from flash_attn_rocm import flash_attn_func
stride = 2**31 + 128
k = torch.as_strided(torch.empty(stride + 4096, dtype=torch.bfloat16), (2, 16, 1, 64), (stride, 64, 64, 1))
q = torch.randn(2, 16, 1, 64, dtype=torch.bfloat16)
v = torch.randn(2, 16, 1, 64, dtype=torch.bfloat16)
flash_attn_func(q, k, v)
print(json.dumps([k.data_ptr(), q.data_ptr(), stride]))
"""
    document = manifest([kernel("plain", args=ARGS | {"batch_stride_q": [136, 4]})])
    run = run_fake(program, document=document)
    assert run.returncode == 0, run.stderr
    k_ptr, q_ptr, stride = json.loads(run.stdout)
    first, second = run.launches()
    for index, launch in enumerate((first, second)):
        data = bytes.fromhex(launch["arguments"])
        assert launch["grid"] == [1, 1, 1]
        assert struct.unpack_from("<q", data, ARGS["k_ptr"][0])[0] == k_ptr + index * stride * 2
        assert struct.unpack_from("<q", data, ARGS["q_ptr"][0])[0] == q_ptr + index * 16 * 64 * 2


def test_rows_beyond_2_gib_are_copied_into_reach(run_fake: RunFake) -> None:
    """One head of k spans 2 GiB through its row stride; a contiguous copy of its few rows does not."""
    program = """
import json, torch
from flash_attn_rocm import flash_attn_func
rows = 17
stride = 2**26
k = torch.as_strided(torch.empty(stride * rows, dtype=torch.bfloat16), (1, rows, 1, 64), (0, stride, 64, 1))
q = torch.randn(1, rows, 1, 64, dtype=torch.bfloat16)
flash_attn_func(q, k, q)
print(json.dumps(k.data_ptr()))
"""
    run = run_fake(program)
    assert run.returncode == 0, run.stderr
    (launch,) = run.launches()
    data = bytes.fromhex(launch["arguments"])
    assert struct.unpack_from("<i", data, ARGS["stride_k"][0])[0] == 64
    assert struct.unpack_from("<q", data, ARGS["k_ptr"][0])[0] != json.loads(run.stdout)


def test_an_argument_the_library_cannot_fill_is_an_error(run_fake: RunFake) -> None:
    document = manifest([kernel("odd", args=ARGS | {"bias_ptr": [152, 8]})])
    run = run_fake(PREAMBLE + 'call("x", t(1, 9, 2, 64), t(1, 9, 2, 64), t(1, 9, 2, 64))', document=document)
    assert run.returncode != 0
    assert "odd: argument bias_ptr (8 bytes) has no value" in run.stderr
    assert not run.launches()


def test_standard_kernels_cover_every_padding() -> None:
    assert {row["padding"] for row in standard_kernels()} == {"none", "seqlen", "full"}
