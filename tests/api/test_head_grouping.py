"""The rule by which heads are launched in groups, the cache sizes it goes by, and what the library tells of both."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

import pytest

from flash_attn_rocm.archs import load_archs
from tests.api.conftest import RunFake
from tests.api.fake_runtime import ARGS, KARGS_BYTES, kernel, manifest

MIB = 1 << 20
# Keys and values of 32768 rows and 128 columns in 16 bits.
LONG_HEAD = 32768 * 128 * 2 * 2


@pytest.fixture(scope="module")
def library(host_library: Path) -> ctypes.CDLL:
    """The host library by its C interface."""
    import torch  # noqa: F401  # its libraries first

    loaded = ctypes.CDLL(str(host_library))
    loaded.fa_rocm_last_error.restype = ctypes.c_char_p
    return loaded


def kv_heads(library: ctypes.CDLL, heads_k: int, head_bytes: int, cache_bytes: int, query_tiles: int = 100) -> int:
    """fa_rocm_choose_kv_heads."""
    found = library.fa_rocm_choose_kv_heads(
        heads_k, ctypes.c_longlong(head_bytes), query_tiles, ctypes.c_longlong(cache_bytes)
    )
    return int(found)


@pytest.mark.parametrize(
    ("heads_k", "head_bytes", "cache_bytes", "expected"),
    [
        # 64 MiB and more: 0.85 of it is used, and 1.3 times that is where groups begin (70.72 MiB).
        (70, MIB, 64 * MIB, 70),
        (71, MIB, 64 * MIB, 54),
        (10, 8 * MIB, 64 * MIB, 6),
        (96, MIB, 96 * MIB, 96),
        (107, MIB, 96 * MIB, 81),
        # Below 64 MiB all of it is used, and groups begin at 1.5 times (48 MiB of 32).
        (47, MIB, 32 * MIB, 47),
        (48, MIB, 32 * MIB, 32),
        (63 * 3 // 2, MIB, 63 * MIB, 63 * 3 // 2),
        (95, MIB, 63 * MIB, 63),
        (95, MIB, 64 * MIB, 54),
        # One head alone may be larger than the cache; at most eight launches.
        (4, 100 * MIB, 64 * MIB, 1),
        (8, 100 * MIB, 64 * MIB, 1),
        (9, 100 * MIB, 64 * MIB, 2),
        (64, 100 * MIB, 64 * MIB, 8),
        (65, 100 * MIB, 64 * MIB, 9),
        # Nothing to divide, nothing known.
        (1, 1000 * MIB, 64 * MIB, 1),
        (64, LONG_HEAD, 0, 64),
        (64, 0, 64 * MIB, 64),
        # The seed's case: 16 heads of 32768 keys in 64 MiB are launched by three.
        (16, LONG_HEAD, 64 * MIB, 3),
    ],
)
def test_heads_of_a_launch(
    library: ctypes.CDLL, heads_k: int, head_bytes: int, cache_bytes: int, expected: int
) -> None:
    assert kv_heads(library, heads_k, head_bytes, cache_bytes) == expected


def test_one_tile_of_queries_reads_nothing_twice(library: ctypes.CDLL) -> None:
    assert kv_heads(library, 16, LONG_HEAD, 64 * MIB, query_tiles=1) == 16
    assert kv_heads(library, 16, LONG_HEAD, 64 * MIB, query_tiles=2) == 3


def write_node(nodes: Path, number: int, properties: dict[str, int], caches: list[dict[str, int]]) -> None:
    """A node of the driver's topology."""

    def write(directory: Path, values: dict[str, int]) -> None:
        directory.mkdir(parents=True)
        text = "".join(f"{name} {value}\n" for name, value in values.items())
        (directory / "properties").write_text(text, encoding="ascii")

    write(nodes / str(number), properties)
    for index, cache in enumerate(caches):
        write(nodes / str(number) / "caches" / str(index), cache)


def node(gfx_version: int, bus: int, device: int = 0, domain: int = 0) -> dict[str, int]:
    """What a GPU's node says, and a number beyond 63 bits, as some nodes have."""
    location = bus << 8 | device << 3
    return {
        "simd_count": 128,
        "unique_id": 2**64 - 5,
        "gfx_target_version": gfx_version,
        "location_id": location,
        "domain": domain,
    }


def levels(*kib: int) -> list[dict[str, int]]:
    """Caches of levels 1, 2, 3..., in KiB."""
    return [{"processor_id_low": 0, "level": level + 1, "size": size} for level, size in enumerate(kib)]


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    """A machine with a CPU, two RX 9070 XT, one of them without a level 3, an RX 9060 XT and an MI250X."""
    write_node(tmp_path, 0, {"cpu_cores_count": 16, "location_id": 0, "domain": 0}, levels(32, 512, 99999))
    write_node(tmp_path, 1, node(120001, 3), [*levels(32, 8192, 65536), {"level": 3, "size": 1024}])
    write_node(tmp_path, 2, node(120001, 0x83, 2, domain=1), levels(32, 8192))
    write_node(tmp_path, 3, node(120000, 7), levels(32, 4096, 32768))
    write_node(tmp_path, 4, node(90010, 9), levels(16, 8192, 31))
    return tmp_path


@pytest.mark.parametrize(
    ("gfx", "domain", "bus", "device", "kib"),
    [
        ("gfx1201", 0, 3, 0, 65536),
        ("gfx1201", 1, 0x83, 2, 0),  # no level 3
        ("gfx1200", 0, 7, 0, 32768),
        ("gfx90a", 0, 9, 0, 0),  # below 32 KiB
        ("gfx1201", 0, 7, 0, 0),  # another GPU has that address
        ("gfx1201", 1, 3, 0, 0),
        ("gfx1201", 0, 3, 1, 0),
        ("gfx1201", 0, 0, 0, 0),  # the CPU's
        ("gf", 0, 3, 0, 0),
        ("gfxabc", 0, 3, 0, 0),
    ],
)
def test_cache_of_a_device_as_the_driver_says_it(
    library: ctypes.CDLL, nodes: Path, gfx: str, domain: int, bus: int, device: int, kib: int
) -> None:
    assert library.fa_rocm_kfd_cache_kib(bytes(nodes), domain, bus, device, gfx.encode()) == kib


def test_no_driver_no_cache(library: ctypes.CDLL, tmp_path: Path) -> None:
    assert library.fa_rocm_kfd_cache_kib(bytes(tmp_path / "absent"), 0, 3, 0, b"gfx1201") == 0


DESCRIBE = """
import torch
from flash_attn_rocm import ops
print(ops.read_json("fa_rocm_describe"))
"""


def grouping(run_fake: RunFake, **environment: str) -> dict[str, Any]:
    """What the library tells of the one device."""
    found: dict[str, Any] = json.loads(run_fake(DESCRIBE, **environment).stdout)["devices"][0]["head_grouping"]
    return found


def test_the_table_counts_where_the_driver_says_nothing(run_fake: RunFake) -> None:
    llc = load_archs()["gfx1201"].llc_mib * MIB
    assert grouping(run_fake) == {
        "active": True,
        "cache_bytes": llc,
        "cache_source": "table",
        "kv_bytes_per_launch": int(llc * 0.85),
        "kv_bytes_from": 74155295,  # 64 MiB * 0.85 * 1.3, rounded up
        "max_launches": 8,
    }


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"CK_TILE_FMHA_LLC_CACHE_MB": "5"}, {"active": True, "cache_bytes": 5 * MIB}),
        ({"CK_TILE_FMHA_LLC_CACHE_MB": "0"}, {"active": False, "reason": "no last-level cache is known"}),
        ({"CK_TILE_FMHA_DISABLE_HEAD_GROUPING": "1"}, {"active": False, "cache_bytes": 64 * MIB}),
        ({"CK_TILE_FMHA_DISABLE_HEAD_GROUPING": "0"}, {"active": True, "cache_bytes": 64 * MIB}),
    ],
)
def test_switches_of_the_environment(run_fake: RunFake, environment: dict[str, str], expected: dict[str, Any]) -> None:
    assert grouping(run_fake, **environment).items() >= expected.items()


@pytest.mark.parametrize("value", ["64MB", "-1", "1e3", "99999999999999999999"])
def test_a_cache_size_that_is_no_number_is_an_error(run_fake: RunFake, value: str) -> None:
    report = json.loads(run_fake(DESCRIBE, CK_TILE_FMHA_LLC_CACHE_MB=value).stdout)
    assert f'CK_TILE_FMHA_LLC_CACHE_MB is "{value}"; allowed: a whole number' in report["devices"][0]["error"]


def test_gpus_of_other_families_launch_all_heads_at_once(run_fake: RunFake) -> None:
    for gfx in ("gfx942", "gfx90a", "gfx950"):
        assert not load_archs()[gfx].head_grouping
    document = manifest(gfx="gfx942", wave_size=64)
    run = run_fake(DESCRIBE, document=document, gfx="gfx942", FAKE_HIP_GFX="gfx942:sramecc+", FAKE_HIP_WAVE_SIZE="64")
    row = json.loads(run.stdout)["devices"][0]["head_grouping"]
    assert (row["active"], row["reason"]) == (False, "not tried on this GPU")


FORWARD = """
import torch
from flash_attn_rocm import flash_attn_func
flash_attn_func(*(torch.zeros(1, 64, 2, 64, dtype=torch.bfloat16) for _ in "qkv"))
"""


def test_a_wrong_cache_size_is_an_error_only_where_heads_are_grouped(run_fake: RunFake) -> None:
    variables = {"CK_TILE_FMHA_LLC_CACHE_MB": "64MB"}
    assert 'CK_TILE_FMHA_LLC_CACHE_MB is "64MB"' in run_fake(FORWARD, **variables).stderr
    gpu = {"FLASH_ATTN_ROCM_EMULATE": "gfx942", "FAKE_HIP_GFX": "gfx942", "FAKE_HIP_WAVE_SIZE": "64"}
    run = run_fake(FORWARD, document=manifest(gfx="gfx942", wave_size=64), gfx="gfx942", **variables, **gpu)
    assert run.returncode == 0, run.stderr
    assert len(run.launches()) == 1


USED = """
import torch
from flash_attn_rocm.backends import ck
ck.prepare()
q = torch.zeros(600, 12, 64, dtype=torch.bfloat16)
k = torch.zeros(8192, 6, 64, dtype=torch.bfloat16)
starts = [torch.tensor([0, n, 2 * n], dtype=torch.int32) for n in (300, 4096)]
for used in (None, torch.tensor([4096, 4096], dtype=torch.int32)):
    torch.ops.flash_attn_rocm.varlen_fwd(
        q, k, k, *starts, used, max_seqlen_q=300, max_seqlen_k=4096, softmax_scale=0.1, num_splits=1
    )
"""


def test_with_lengths_of_keys_all_batch_entries_are_read_at_once(run_fake: RunFake) -> None:
    """CK's kernels then run tile by tile of all batch entries: a head has the keys and values of both."""
    args = ARGS | {
        name: [160 + 8 * number, 8] for number, name in enumerate(("seqstart_q_ptr", "seqstart_k_ptr", "seqlen_k_ptr"))
    }
    args |= {name: [184 + 8 * number, 8] for number, name in enumerate(("seqlen_q_ptr", "cu_seqlen_q_ptr"))}
    args |= {"cu_seqlen_k_ptr": [200, 8], "min_seqlen_q": [208, 4]}
    row = kernel("group", mode="group", args=args, kargs_bytes=KARGS_BYTES + 56)
    run = run_fake(USED, document=manifest([row]), CK_TILE_FMHA_LLC_CACHE_MB="4", CK_TILE_FMHA_HEAD_GROUP_LOG="1")
    assert run.returncode == 0, run.stderr
    one = 4096 * 64 * 2 * 2
    assert [
        f"have {n} bytes a head" in line for n, line in zip((one, 2 * one), run.stderr.splitlines(), strict=True)
    ] == [
        True,
        True,
    ]


CALL = """
import torch
from flash_attn_rocm.backends import ck
ck.prepare()
q = torch.zeros(2, 300, 12, 64, dtype=torch.bfloat16)
k, v = (torch.zeros(2, 4096, 6, 64, dtype=torch.bfloat16) for _ in "kv")
slopes = torch.ones(2, 12)
out, lse, _ = torch.ops.flash_attn_rocm.fwd(q, k, v, slopes, None, softmax_scale=0.1)
print([tensor.data_ptr() for tensor in (q, k, v, out, lse, slopes)])
"""


def test_pointers_of_every_launch(run_fake: RunFake) -> None:
    """Two launches of 4 heads of keys (8 of q), then of 2 (4 of q); slopes go with their heads."""
    args = ARGS | {"alibi_slope_ptr": [160, 8], "alibi_slope_stride": [168, 4]}
    row = kernel("alibi", bias="alibi", mask=True, args=args, kargs_bytes=KARGS_BYTES + 16)
    run = run_fake(CALL, document=manifest([row]), CK_TILE_FMHA_LLC_CACHE_MB="4", CK_TILE_FMHA_HEAD_GROUP_LOG="1")
    assert run.returncode == 0, run.stderr
    assert "8 of 12 heads a launch" in run.stderr
    assert "the last-level cache 4194304 (CK_TILE_FMHA_LLC_CACHE_MB)" in run.stderr
    q, k, v, out, lse, slopes = json.loads(run.stdout)
    launches = run.launches()
    assert [launch["grid"] for launch in launches] == [[8, 5, 2], [4, 5, 2]]
    for launch, first in zip(launches, (0, 8), strict=True):
        image = bytes.fromhex(launch["arguments"])

        def read(name: str, image: bytes = image) -> int:
            offset, size = args[name]
            return int.from_bytes(image[offset : offset + size], "little")

        head, head_k = first * 64 * 2, first // 2 * 64 * 2
        assert [read(name) for name in ("q_ptr", "o_ptr")] == [q + head, out + head]
        assert [read(name) for name in ("k_ptr", "v_ptr")] == [k + head_k, v + head_k]
        assert read("lse_ptr") == lse + first * 300 * 4
        assert read("alibi_slope_ptr") == slopes + first * 4
        assert read("nhead_ratio_qk") == 2
