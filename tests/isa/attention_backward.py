"""CK's backward kernel launched from numpy: fills its arguments from the record's offsets; gradients in fp64."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.isa.attention import BOTTOM_RIGHT, Case, from_bits, reference, to_bits, visible
from tests.isa.hip_runtime import Buffer, Hip

FLOATS = {"raw_scale", "scale", "p_undrop", "rp_undrop", "scale_rp_undrop"}


@dataclass(frozen=True)
class Problem:
    """Inputs as the kernel reads them, (batch, seqlen, heads, dim), and what follows from them in fp64."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    dout: np.ndarray
    lse: np.ndarray  # (batch, heads, seqlen_q)
    delta: np.ndarray  # rowsum(dO * O), as lse
    dq: np.ndarray
    dk: np.ndarray  # of each query head: (batch, seqlen_k, heads, dim)
    dv: np.ndarray


def make_problem(case: Case, dim: int, dtype: str, scale: float, seed: int) -> tuple[Problem, dict[str, np.ndarray]]:
    """Random inputs rounded to the dtype, their gradients, and their bits."""
    generator = np.random.default_rng(seed)
    lengths = {"q": (case.seqlen_q, case.heads), "k": (case.seqlen_k, case.heads_k)}
    lengths |= {"v": lengths["k"], "do": lengths["q"]}
    bits = {name: to_bits(generator.standard_normal((case.batch, *pair, dim)), dtype) for name, pair in lengths.items()}
    q, k, v, dout = (from_bits(bits[name], dtype) for name in ("q", "k", "v", "do"))
    mask = visible(case)
    out, lse = reference(q, k, v, scale, mask)
    group = case.heads // case.heads_k
    keys, values = np.repeat(k, group, axis=2), np.repeat(v, group, axis=2)
    scores = np.where(mask, np.einsum("bihd,bjhd->bhij", q, keys) * scale, -np.inf)
    p = np.exp(scores - np.where(np.isfinite(lse), lse, 0.0)[..., None])
    delta = np.einsum("bihd,bihd->bhi", dout, out)
    ds = p * (np.einsum("bihd,bjhd->bhij", dout, values) - delta[..., None]) * scale
    problem = Problem(
        q, k, v, dout, lse, delta,
        dq=np.einsum("bhij,bjhd->bihd", ds, keys),
        dk=np.einsum("bhij,bihd->bjhd", ds, q),
        dv=np.einsum("bhij,bihd->bjhd", p, dout),
    )  # fmt: skip
    return problem, bits


def fill_arguments(kernel: dict[str, Any], values: dict[str, float]) -> bytes:
    """The kernel's argument block; every argument that the kernel has must be given."""
    block = bytearray(kernel["kargs_bytes"])
    for name, (offset, size) in kernel["args"].items():
        if name in FLOATS:
            struct.pack_into("<f", block, offset, values[name])
        else:
            block[offset : offset + size] = int(values[name]).to_bytes(size, "little", signed=values[name] < 0)
    return bytes(block)


def argument_values(case: Case, dim: int, scale: float, buffers: dict[str, Buffer]) -> dict[str, float]:
    """Values of all arguments for contiguous tensors; dq_acc is (batch, heads, split, seqlen_q, dim)."""
    values: dict[str, float] = {f"{name}_ptr": buffer.address for name, buffer in buffers.items()}
    values |= {
        "seqlen_q": case.seqlen_q,
        "seqlen_k": case.seqlen_k,
        "hdim_q": dim,
        "hdim_v": dim,
        "num_head_q": case.heads,
        "nhead_ratio_qk": case.heads // case.heads_k,
        "raw_scale": scale,
        "scale": scale * math.log2(math.e),
        "window_size_left": case.left,
        "window_size_right": case.right,
        "mask_type": BOTTOM_RIGHT,
        "nhead_stride_lsed": case.seqlen_q,
        "batch_stride_lsed": case.heads * case.seqlen_q,
    }
    splits = buffers["dq_acc"].shape[2]
    values |= {
        "stride_dq_acc": dim,
        "split_stride_dq_acc": case.seqlen_q * dim,
        "nhead_stride_dq_acc": splits * case.seqlen_q * dim,
        "batch_stride_dq_acc": case.heads * splits * case.seqlen_q * dim,
    }
    for name in ("q", "k", "v", "do", "dk", "dv"):
        _, length, heads, _ = buffers[name].shape
        values |= {
            f"stride_{name}": heads * dim,
            f"nhead_stride_{name}": dim,
            f"batch_stride_{name}": length * heads * dim,
        }
    return values


@dataclass(frozen=True)
class Gradients:
    """What the kernel wrote, as float64: dq summed over the splits, dk and dv of each query head."""

    dq: np.ndarray
    dk: np.ndarray
    dv: np.ndarray
    expected: Problem


def run_backward(hip: Hip, path: Path, kernel: dict[str, Any], case: Case, dim: int, seed: int = 0) -> Gradients:
    """Runs one kernel on random data of head dimension `dim`."""
    dtype = kernel["dtype"]
    scale = 1 / math.sqrt(dim)
    problem, bits = make_problem(case, dim, dtype, scale, seed)
    splits = math.ceil(case.seqlen_k / kernel["tile_n"]) if "split_stride_dq_acc" in kernel["args"] else 1
    expanded = np.full((case.batch, case.seqlen_k, case.heads, dim), 0x7FE1, np.uint16)
    buffers = {name: hip.buffer(data) for name, data in bits.items()}
    buffers["lse"] = hip.buffer(problem.lse.astype(np.float32))
    buffers["d"] = hip.buffer(problem.delta.astype(np.float32))
    buffers["dk"], buffers["dv"] = hip.buffer(expanded), hip.buffer(expanded)
    buffers["dq_acc"] = hip.buffer(np.zeros((case.batch, case.heads, splits, case.seqlen_q, dim), np.float32))
    values = argument_values(case, dim, scale, buffers)
    grid = (math.ceil(case.seqlen_k / kernel["tile_n"]), case.heads, case.batch)
    function = hip.kernel(path, kernel["name"])
    hip.launch(function, fill_arguments(kernel, values), grid, (kernel["block_threads"], 1, 1))
    dq = buffers["dq_acc"].read().astype(np.float64).sum(axis=2).transpose(0, 2, 1, 3)
    result = Gradients(dq, from_bits(buffers["dk"].read(), dtype), from_bits(buffers["dv"].read(), dtype), problem)
    for buffer in buffers.values():
        buffer.free()
    return result
