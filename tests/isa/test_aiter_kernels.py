"""AMD's own gfx942 and gfx950 kernels, which nobody here wrote or compiled, against an fp64 reference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from ck.golden import find_golden
from scripts.buildlib.cache_root import cache_root
from tests.isa.aiter_forward import forward_launch
from tests.isa.aiter_kernels import (
    FORMATS,
    LOG2E,
    Golden,
    Mask,
    Problem,
    Rounding,
    assert_close,
    attention,
    byte_strides,
    offsets,
)
from tests.isa.conftest import DEVICES
from tests.isa.hip_runtime import Buffer, Hip, HipError

CAUSAL = Mask(right=0, bottom_right=True)


@pytest.fixture(scope="module")
def golden() -> Path:
    directory = find_golden(cache_root())
    if directory is None:
        pytest.fail("the golden kernels are not there; run `./pixiw run fetch-ck`, then `./pixiw run build`")
    return directory


@pytest.fixture(autouse=True)
def first_device_again(hip: Hip) -> Iterator[None]:
    yield
    hip.call("hipSetDevice", 0)


def load(hip: Hip, golden: Path, gfx: str, name: str) -> Golden:
    hip.call("hipSetDevice", DEVICES.index(gfx))
    return Golden(hip, golden / gfx / f"{name}.co")


def run_forward(kernel: Golden, problem: Problem, group: bool) -> tuple[np.ndarray, np.ndarray]:
    """The output [rows, heads, dim_v] as raw halves, the LSE [sequences, heads, rows], in group mode [heads, rows]."""
    launch = forward_launch(kernel.hip, problem, group)
    try:
        kernel.launch(launch.values, launch.grid)
        return launch.buffers["R"].read(), launch.buffers["LSE"].read()
    finally:
        launch.free()


def check_forward(problem: Problem, output: np.ndarray, lse: np.ndarray, group: bool, rounding: str) -> None:
    unit = 2.0 ** (-problem.format.bits + (rounding == "rtz"))
    for sequence, rows in enumerate(problem.q):
        start = sum(problem.q[:sequence])
        for head in range(problem.heads):
            exact = attention(problem, sequence, head)
            got = problem.format.decode(output[start : start + rows, head])
            what = f"o of sequence {sequence}, head {head}"
            assert_close(got, exact.o, Rounding(unit, unit, 0.0, rounding == "rtz"), what)
            got_lse = lse[head, start : start + rows] if group else lse[sequence, head]
            np.testing.assert_allclose(got_lse, exact.lse, rtol=2e-6, atol=2e-6)


BF16 = FORMATS["bf16"]
BATCHES = {
    "even": Problem(BF16, (512,), (512,)),
    "ragged": Problem(BF16, (333,), (333,), heads=3, heads_k=3),
    "longer keys": Problem(BF16, (200, 200), (333, 333), heads=4, heads_k=2),
}
GROUPS = {"group": Problem(BF16, (300, 77, 256), (300, 130, 256), heads=4, heads_k=2)}


def with_mask(problem: Problem, causal: bool) -> Problem:
    return replace(problem, mask=CAUSAL) if causal else problem


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("case", [*BATCHES, *GROUPS])
@pytest.mark.parametrize("rounding", ["rtna", "rtne", "rtz"])
def test_gfx942_forward(hip: Hip, golden: Path, rounding: str, case: str, causal: bool) -> None:
    group = case in GROUPS
    problem = with_mask({**BATCHES, **GROUPS}[case], causal)
    name = f"fwd_hd128_bf16{'_causal' * causal}_{rounding}{'_group' * group}"
    output, lse = run_forward(load(hip, golden, "gfx942", name), problem, group)
    check_forward(problem, output, lse, group, rounding)


# Kernel, problem. The causal ones have no more rows than a workgroup does at a time: see test_race_between_tiles.
GFX950_FORWARD = [
    ("fwd_hd128_bf16", Problem(BF16, (512,), (512,))),
    ("fwd_hd128_bf16", Problem(BF16, (333, 333), (400, 400), heads=4, heads_k=2)),
    ("fwd_hd128_bf16_group", Problem(BF16, (300, 77), (300, 130), heads=4, heads_k=2)),
    ("fwd_hd128_bf16_causal", Problem(BF16, (256,), (256,), mask=CAUSAL)),
    ("fwd_hd128_bf16_causal", Problem(BF16, (200, 200), (333, 333), heads=4, heads_k=2, mask=CAUSAL)),
    ("fwd_hd128_bf16_causal_group", Problem(BF16, (200, 77), (300, 130), mask=CAUSAL)),
]


@pytest.mark.parametrize(("name", "problem"), GFX950_FORWARD)
def test_gfx950_forward(hip: Hip, golden: Path, name: str, problem: Problem) -> None:
    group = name.endswith("_group")
    output, lse = run_forward(load(hip, golden, "gfx950", name), problem, group)
    check_forward(problem, output, lse, group, "rtne")


WITHOUT_BARRIER = [
    ("fwd_hd128_bf16_causal", Problem(BF16, (512,), (512,), mask=CAUSAL)),
    ("fwd_hd192_hd128_bf16", Problem(BF16, (128,), (128,), dim=192)),
    ("fwd_hd192_hd128_bf16_causal", Problem(BF16, (128,), (128,), dim=192, mask=CAUSAL)),
]


@pytest.mark.parametrize(("name", "problem"), WITHOUT_BARRIER)
def test_race_between_tiles(hip: Hip, golden: Path, name: str, problem: Problem) -> None:
    """These kernels load the next tile into LDS that other waves may still read: no barrier comes between.

    On hardware the loads take longer than the reads. The emulator's check finds it.
    """
    with pytest.raises(
        HipError, match=r"buffer_load_dwordx4 .* lds\": LDS race: |LDS race: .*buffer_load_dwordx4 .* lds"
    ):
        run_forward(load(hip, golden, "gfx950", name), problem, False)


# Keys of a workgroup, by GPU, head dims and whether it is a kernel for windows.
BACKWARD_KEYS = {
    ("gfx942", 64, 64, False): 192,
    ("gfx942", 128, 128, False): 192,
    ("gfx942", 128, 128, True): 192,
    ("gfx942", 192, 192, False): 64,
    ("gfx950", 64, 64, False): 192,
    ("gfx950", 128, 128, False): 256,
    ("gfx950", 128, 128, True): 192,
    ("gfx950", 192, 192, False): 64,
    ("gfx950", 192, 128, False): 192,
}


@dataclass(frozen=True)
class Backward:
    """A backward kernel and a problem for it. `sum16`: dq is summed in 16 bits; `shuffled`: in an order of its own."""

    gfx: str
    name: str
    problem: Problem
    shuffle: str = ""

    @property
    def group(self) -> bool:
        return self.name.endswith("_group")

    @property
    def sum16(self) -> bool:
        return "_a16" in self.name

    @property
    def tile(self) -> int:
        return BACKWARD_KEYS[self.gfx, self.problem.dim, self.problem.dim_v, "_swa" in self.name]

    def __str__(self) -> str:
        return f"{self.gfx}-{self.name}-{'+'.join(map(str, self.problem.q))}"


def softmax_inputs(problem: Problem, group: bool) -> tuple[np.ndarray, np.ndarray]:
    """LSE and row sums of do * o, which other kernels give: [sequences, heads, rows], in group mode [heads, rows]."""
    parts = [[attention(problem, i, head) for head in range(problem.heads)] for i in range(len(problem.q))]
    lse = [[np.where(np.isfinite(part.lse), part.lse, np.inf) for part in row] for row in parts]
    delta = [[part.delta for part in row] for row in parts]
    if group:
        return tuple(np.concatenate([np.stack(row) for row in data], 1).astype(np.float32) for data in (lse, delta))
    return np.array(lse, np.float32), np.array(delta, np.float32)


def backward_values(case: Backward, buffers: dict[str, Buffer]) -> dict[str, int | float | Buffer]:
    """The arguments of every backward kernel by their names."""
    problem, group = case.problem, case.group
    rows_q, rows_k = (sum(problem.q), sum(problem.k)) if group else (problem.q[0], problem.k[0])
    q = (rows_q, problem.heads, problem.dim)
    k = (rows_k, problem.heads_k, problem.dim)
    shift = problem.k[0] - problem.q[0] if problem.mask.bottom_right else 0
    values: dict[str, int | float | Buffer] = {**buffers}
    for ending, shape in (
        ("", q),
        ("_q", q),
        ("_kv", k),
        ("_k", k),
        ("_v", (rows_k, problem.heads_k, problem.dim_v)),
        ("_do", (rows_q, problem.heads, problem.dim_v)),
        ("_dkv", (rows_k, problem.heads, problem.dim)),
        ("_dk", (rows_k, problem.heads, problem.dim)),
        ("_dv", (rows_k, problem.heads, problem.dim_v)),
    ):
        values |= byte_strides((f"Seqs{ending}", f"Hs{ending}", f"BAs{ending}"), *shape)
    return values | {
        "scalar": problem.scale,
        "log2e": LOG2E,
        "ratio": problem.heads // problem.heads_k,
        "Ts": case.tile * problem.heads_k * problem.dim * 2,
        "seq_len": rows_q,
        "seqlen_q": rows_q,
        "seqlen_k": rows_k,
        "head_dim": problem.dim,
        "head_dim_q": problem.dim,
        "head_dim_k": problem.dim_v,
        "nhead_q": problem.heads,
        "nhead": problem.heads,
        "s_Hs_lsed": rows_q * 4,
        "Hs_lsed": rows_q * 4,
        "max_seq_len_dq": -(-max(problem.q) // 16) * 16,
        "mask_x": problem.mask.right + 1 + shift,
        "mask_y": problem.mask.left + 1 - shift,
    }


def dq_buffer(case: Backward) -> np.ndarray:
    """Zeros in which the kernel sums dq."""
    problem = case.problem
    heads, dim = problem.heads, problem.dim
    if case.sum16 and not case.shuffle:
        return np.zeros((sum(problem.q), heads, dim), np.uint16)
    if case.sum16:
        return np.zeros((len(problem.q), heads, -(-max(problem.q) // 16) * 16, max(dim, 128)), np.uint16)
    shape = (heads, sum(problem.q), dim) if case.group else (len(problem.q), heads, problem.q[0], dim)
    return np.zeros(shape, np.float32)


def shuffled(hip: Hip, golden: Path, case: Backward, buffers: dict[str, Buffer], sums: np.ndarray) -> np.ndarray:
    """What the kernel that brings dq into order makes of the sums."""
    problem = case.problem
    rows = sum(problem.q) if case.group else problem.q[0]
    result = hip.buffer(np.full((sum(problem.q), problem.heads, problem.dim), 0x7FE1, np.uint16))
    heads, padded, dim = sums.shape[1:]
    values = {
        **byte_strides(("Seqs_dq", "Hs_dq", "BAs_dq"), rows, problem.heads, problem.dim),
        "dQ_acc": buffers["dQ"],
        "dQ": result,
        "Ts": 64 * problem.heads * problem.dim * 2,
        "Seqs_dq_acc": dim * 2,
        "Hs_dq_acc": padded * dim * 2,
        "BAs_dq_acc": heads * padded * dim * 2,
        "seqlen_q": rows,
        "head_dim": problem.dim,
        "ptr_seqstart_q": buffers["ptr_seqstart_q"],
        "ptr_seqstart_q_padded": buffers["ptr_seqstart_q"],
        "max_seqlen_dq": padded,
    }
    kernel = load(hip, golden, case.gfx, case.shuffle)
    kernel.launch(values, (-(-max(problem.q) // 64), problem.heads, len(problem.q)))
    got = result.read()
    result.free()
    return got


def run_backward(hip: Hip, golden: Path, case: Backward) -> dict[str, np.ndarray]:
    """dq, dk and dv as fp64 [rows, heads, dim]."""
    problem, kernel = case.problem, load(hip, golden, case.gfx, case.name)
    lse, delta = softmax_inputs(problem, case.group)
    dk = np.full((sum(problem.k), problem.heads, problem.dim), 0x7FE1, np.uint16)
    dv = np.full((sum(problem.k), problem.heads, problem.dim_v), 0x7FE1, np.uint16)
    sums = dq_buffer(case)
    data = {"dQ": sums, "dK": dk, "dV": dv, "Lse": lse, "D": delta, "dO": problem.tensors["do"]}
    data |= {name: problem.tensors[name.lower()] for name in ("Q", "K", "V")}
    buffers = {name: hip.buffer(array) for name, array in data.items()}
    for side, lengths in (("q", problem.q), ("k", problem.k)):
        starts = hip.buffer(offsets(lengths))
        names = (f"ptr_{side}seq", f"ptr_{side}seq_padded", f"ptr_seqstart_{side}", f"ptr_seqstart_{side}_padded")
        buffers |= dict.fromkeys(names, starts)
    tiles = -(-max(problem.k) // case.tile)
    if "_causal" in case.name:
        tiles = -(-tiles // 2)  # a workgroup does one tile from either end
    try:
        kernel.launch(backward_values(case, buffers), (tiles, problem.heads, len(problem.q)))
        results = {name: problem.format.decode(buffers[name].read()) for name in ("dK", "dV")}
        raw = shuffled(hip, golden, case, buffers, sums) if case.shuffle else buffers["dQ"].read()
    finally:
        for buffer in {id(buffer): buffer for buffer in buffers.values()}.values():
            buffer.free()
    dq = problem.format.decode(raw) if case.sum16 else raw.astype(np.float64)
    if not case.sum16:
        dq = dq.swapaxes(-3, -2).reshape(sum(problem.q), problem.heads, problem.dim)
    return {"dq": dq, "dk": results["dK"], "dv": results["dV"]}


FP16 = FORMATS["fp16"]
TOP_LEFT = Mask(right=0)
CASES = [
    Backward("gfx942", "bwd_hd128_bf16_a32_rtne", Problem(BF16, (384,), (384,))),
    Backward("gfx942", "bwd_hd128_bf16_causal_a32_rtna", Problem(BF16, (384,), (384,), mask=TOP_LEFT)),
    Backward("gfx942", "bwd_hd128_bf16_a32_rtna_psskddv", Problem(BF16, (333,), (250,), heads=4)),
    Backward("gfx942", "bwd_hd128_bf16_a32_rtz_psskddv", Problem(BF16, (200, 200), (333, 333))),
    Backward("gfx942", "bwd_hd128_bf16_causal_a32_rtne_psskddv", Problem(BF16, (333,), (333,), mask=TOP_LEFT)),
    Backward("gfx942", "bwd_hd128_bf16_causal_br_a32_rtne_psskddv", Problem(BF16, (200,), (333,), mask=CAUSAL)),
    Backward("gfx942", "bwd_hd128_bf16_swa_a32_rtne_psskddv", Problem(BF16, (384,), (384,), mask=Mask(60, 20))),
    Backward("gfx942", "bwd_hd128_bf16_a32_rtne_pssk_group", Problem(BF16, (300, 77), (200, 130), heads=4)),
    Backward(
        "gfx942", "bwd_hd128_bf16_causal_a32_rtz_psskddv_group", Problem(BF16, (300, 77), (300, 77), mask=TOP_LEFT)
    ),
    Backward("gfx942", "bwd_hd128_bf16_a16_rtne", Problem(BF16, (384,), (384,))),
    Backward("gfx942", "bwd_hd128_bf16_causal_a16_rtz", Problem(BF16, (384,), (384,), mask=TOP_LEFT)),
    Backward("gfx942", "bwd_hd128_fp16_a32_psskddv", Problem(FP16, (333,), (333,))),
    Backward("gfx942", "bwd_hd128_fp16_causal_a32", Problem(FP16, (384,), (384,), mask=TOP_LEFT)),
    Backward("gfx942", "bwd_hd128_fp16_a16", Problem(FP16, (384,), (384,))),
    Backward("gfx942", "bwd_hd128_fp16_causal_a16_pddv", Problem(FP16, (384,), (384,), mask=TOP_LEFT)),
    Backward("gfx942", "bwd_hd64_bf16_a32_rtne_pssk", Problem(BF16, (333,), (333,), dim=64, dim_v=64)),
    Backward(
        "gfx942", "bwd_hd64_bf16_causal_a32_rtz_pssk", Problem(BF16, (333,), (333,), dim=64, dim_v=64, mask=TOP_LEFT)
    ),
    Backward(
        "gfx942", "bwd_hd64_fp16_causal_br_a32_pssk", Problem(FP16, (200,), (333,), dim=64, dim_v=64, mask=CAUSAL)
    ),
    Backward("gfx942", "bwd_hd64_fp16_a32_pssk_group", Problem(FP16, (300, 77), (200, 130), dim=64, dim_v=64)),
    Backward("gfx942", "bwd_hd64_bf16_a16_rtna", Problem(BF16, (384,), (384,), dim=64, dim_v=64)),
    Backward("gfx942", "bwd_hd192_bf16_a32_rtne_psskddv", Problem(BF16, (150,), (150,), dim=192, dim_v=192)),
    Backward(
        "gfx942", "bwd_hd192_fp16_causal_a32_psskddv", Problem(FP16, (150,), (150,), dim=192, dim_v=192, mask=TOP_LEFT)
    ),
    Backward("gfx950", "bwd_hd128_bf16_a32_psskddv", Problem(BF16, (333,), (250,), heads=4)),
    Backward("gfx950", "bwd_hd128_bf16_causal_a32_psskddv", Problem(BF16, (250,), (250,), mask=TOP_LEFT)),
    Backward("gfx950", "bwd_hd128_bf16_causal_br_a32_psskddv", Problem(BF16, (150,), (250,), mask=CAUSAL)),
    Backward("gfx950", "bwd_hd128_fp16_a32_psskddv", Problem(FP16, (333,), (333,))),
    Backward("gfx950", "bwd_hd128_bf16_a32_psskddv_group", Problem(BF16, (300, 77), (200, 130), heads=4)),
    Backward("gfx950", "bwd_hd128_bf16_swa_a32_rtne_psskddv", Problem(BF16, (384,), (384,), mask=Mask(60, 20))),
    Backward("gfx950", "bwd_hd128_bf16_a16_psskddv", Problem(BF16, (333,), (333,)), "bwd_hd128_dq_shuffle"),
    Backward(
        "gfx950",
        "bwd_hd128_bf16_causal_a16_psskddv",
        Problem(BF16, (250,), (250,), mask=TOP_LEFT),
        "bwd_hd128_dq_shuffle",
    ),
    Backward(
        "gfx950",
        "bwd_hd128_fp16_causal_a16_psskddv",
        Problem(FP16, (250,), (250,), mask=TOP_LEFT),
        "bwd_hd128_dq_shuffle",
    ),
    Backward(
        "gfx950",
        "bwd_hd128_fp16_causal_br_a16_psskddv_group",
        Problem(FP16, (250, 77), (250, 130), mask=CAUSAL),
        "bwd_hd128_dq_shuffle_group",
    ),
    Backward("gfx950", "bwd_hd192_hd128_bf16_a16_pssk", Problem(BF16, (333,), (333,), dim=192), "bwd_hd192_dq_shuffle"),
    Backward("gfx950", "bwd_hd192_hd128_bf16_causal_a32_pssk", Problem(BF16, (180,), (180,), dim=192, mask=TOP_LEFT)),
    Backward("gfx950", "bwd_hd64_bf16_a32_rtne_pssk", Problem(BF16, (333,), (333,), dim=64, dim_v=64)),
    Backward("gfx950", "bwd_hd64_fp16_causal_a16", Problem(FP16, (384,), (384,), dim=64, dim_v=64, mask=TOP_LEFT)),
    Backward(
        "gfx950",
        "bwd_hd192_bf16_causal_a32_rtz_psskddv",
        Problem(BF16, (150,), (150,), dim=192, dim_v=192, mask=TOP_LEFT),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_backward(hip: Hip, golden: Path, case: Backward) -> None:
    """dq, dk and dv of every head; with fewer heads of k than of q the kernels give dk and dv for each head of q."""
    problem = case.problem
    got = run_backward(hip, golden, case)
    truncated = "_rtz" in case.name or problem.format is FP16
    unit = 2.0 ** (-problem.format.bits + truncated)
    step = 2.0**-24 if problem.format is FP16 else 0.0
    for sequence in range(len(problem.q)):
        for head in range(problem.heads):
            exact = attention(problem, sequence, head)
            for name, lengths in (("dq", problem.q), ("dk", problem.k), ("dv", problem.k)):
                start = sum(lengths[:sequence])
                part = got[name][start : start + lengths[sequence], head]
                what = f"{name} of sequence {sequence}, head {head}"
                result = unit if name != "dq" or case.sum16 else 0.0
                if name == "dq" and case.sum16:
                    result *= 1 + -(-max(problem.k) // case.tile)
                assert_close(part, getattr(exact, name), Rounding(unit, result, step, truncated), what)
