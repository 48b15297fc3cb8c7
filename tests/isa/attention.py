"""CK forward kernels launched from numpy: fills kernel arguments from the manifest's offsets, and an fp64 reference."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.isa.hip_runtime import Hip

BOTTOM_RIGHT = 2  # mask_type of CK: the mask is aligned to the last row and column


@dataclass(frozen=True)
class Case:
    """One attention problem; a window bound of -1 is open, causal is right = 0."""

    seqlen_q: int
    seqlen_k: int
    heads: int = 2
    heads_k: int = 2
    batch: int = 1
    left: int = -1
    right: int = -1

    @property
    def masked(self) -> bool:
        return self.left >= 0 or self.right >= 0


def to_bits(values: np.ndarray, dtype: str) -> np.ndarray:
    """fp16 or bf16 bits of float values, to nearest even."""
    if dtype == "fp16":
        return values.astype(np.float16).view(np.uint16)
    raw = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((raw + 0x7FFF + ((raw >> 16) & 1)) >> 16).astype(np.uint16)


def from_bits(raw: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "fp16":
        return raw.view(np.float16).astype(np.float64)
    return (raw.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def visible(case: Case) -> np.ndarray:
    """(seqlen_q, seqlen_k) booleans: which keys a row sees, aligned bottom right."""
    row = np.arange(case.seqlen_q)[:, None] + case.seqlen_k - case.seqlen_q
    column = np.arange(case.seqlen_k)[None, :]
    mask = np.ones((case.seqlen_q, case.seqlen_k), bool)
    if case.left >= 0:
        mask &= column >= row - case.left
    if case.right >= 0:
        mask &= column <= row + case.right
    return mask


def reference(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, mask: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """fp64 attention over (batch, seqlen, heads, dim): output, LSE (batch, heads, seqlen_q); empty rows: 0, -inf."""
    group = q.shape[2] // k.shape[2]
    k, v = np.repeat(k, group, axis=2), np.repeat(v, group, axis=2)
    scores = np.where(mask, np.einsum("bihd,bjhd->bhij", q, k) * scale, -np.inf)
    peak = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(peak), peak, 0))
    total = weights.sum(axis=-1, keepdims=True)
    output = np.einsum("bhij,bjhd->bihd", weights / np.where(total == 0, 1, total), v)
    with np.errstate(divide="ignore"):
        return output, (np.log(total) + np.where(np.isfinite(peak), peak, -np.inf))[..., 0]


def fill_arguments(kernel: dict[str, Any], values: dict[str, float]) -> bytes:
    """The kernel's argument block; every argument that the kernel has must be given."""
    block = bytearray(kernel["kargs_bytes"])
    for name, (offset, size) in kernel["args"].items():
        if name == "scale_s":
            struct.pack_into("<f", block, offset, values[name])
        else:
            block[offset : offset + size] = int(values[name]).to_bytes(size, "little", signed=values[name] < 0)
    return bytes(block)


def argument_values(case: Case, dim: int, addresses: Sequence[int], scale: float) -> dict[str, float]:
    """Values of all arguments for contiguous tensors; addresses of q, k, v, output and LSE."""
    values: dict[str, float] = dict(zip(("q_ptr", "k_ptr", "v_ptr", "o_ptr", "lse_ptr"), addresses, strict=True))
    values |= {
        "seqlen_q": case.seqlen_q,
        "seqlen_k": case.seqlen_k,
        "hdim_q": dim,
        "hdim_v": dim,
        "num_head_q": case.heads,
        "nhead_ratio_qk": case.heads // case.heads_k,
        "scale_s": scale * math.log2(math.e),
        "window_size_left": case.left,
        "window_size_right": case.right,
        "mask_type": BOTTOM_RIGHT,
        "nhead_stride_lse": case.seqlen_q,
        "batch_stride_lse": case.heads * case.seqlen_q,
        "cu_seqlen_q_ptr": 0,
        "cu_seqlen_k_ptr": 0,
    }
    lengths = {"q": case.seqlen_q, "k": case.seqlen_k, "v": case.seqlen_k, "o": case.seqlen_q}
    for letter, length in lengths.items():
        heads = case.heads_k if letter in "kv" else case.heads
        values |= {
            f"stride_{letter}": heads * dim,
            f"nhead_stride_{letter}": dim,
            f"batch_stride_{letter}": length * heads * dim,
        }
    return values


@dataclass(frozen=True)
class Result:
    output: np.ndarray
    lse: np.ndarray
    expected: np.ndarray
    expected_lse: np.ndarray


def run_forward(
    hip: Hip,
    directory: Path,
    manifest: dict[str, Any],
    kernel: dict[str, Any],
    case: Case,
    dim: int,
    seed: int = 0,
    scale_factor: float = 1.0,
) -> Result:
    """Runs one kernel on random data of head dimension `dim`; inputs and outputs are (batch, seqlen, heads, dim)."""
    generator = np.random.default_rng(seed)
    shapes = [
        (case.batch, length, heads, dim)
        for length, heads in ((case.seqlen_q, case.heads), (case.seqlen_k, case.heads_k), (case.seqlen_k, case.heads_k))
    ]
    raw = [to_bits(generator.standard_normal(shape), kernel["dtype"]) for shape in shapes]
    buffers = [hip.buffer(data) for data in raw]
    out = hip.buffer(np.full(shapes[0], 0x7FE1, np.uint16))
    lse = hip.buffer(np.full((case.batch, case.heads, case.seqlen_q), np.nan, np.float32))
    scale = 1 / math.sqrt(dim)
    addresses = (*(buffer.address for buffer in buffers), out.address, lse.address)
    values = argument_values(case, dim, addresses, scale * scale_factor)
    function = hip.kernel(directory / manifest["code_objects"][kernel["code_object"]]["file"], kernel["name"])
    grid = (case.heads, math.ceil(case.seqlen_q / kernel["tile_m"]) * math.ceil(dim / kernel["hdim_v"]), case.batch)
    hip.launch(function, fill_arguments(kernel, values), grid, (kernel["block_threads"], 1, 1))
    q, k, v = (from_bits(data, kernel["dtype"]) for data in raw)
    expected, expected_lse = reference(q, k, v, scale, visible(case))
    result = Result(from_bits(out.read(), kernel["dtype"]), lse.read(), expected, expected_lse)
    for buffer in [*buffers, out, lse]:
        buffer.free()
    return result


def plain_kernels(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """Forward kernels for equal lengths without bias, softcap and dropout: `run_forward` fills their arguments."""
    return [
        kernel
        for kernel in manifest["kernels"]
        if (kernel["op"], kernel["mode"], kernel["bias"]) == ("fmha_fwd", "batch", "none")
        and not (kernel["softcap"] or kernel["dropout"])
    ]
