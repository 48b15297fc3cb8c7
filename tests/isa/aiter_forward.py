"""Arguments and grid of AMD's hand-written forward kernels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.isa.aiter_kernels import Mask, Problem, byte_strides, offsets
from tests.isa.hip_runtime import Buffer, Hip

FORWARD_ROWS = {128: 256, 192: 128}  # query rows of a workgroup, by head dim


@dataclass(frozen=True)
class Launch:
    """`values` by the arguments' names; `buffers` are those of them that are memory."""

    buffers: dict[str, Buffer]
    values: dict[str, int | float | Buffer]
    grid: tuple[int, int, int]

    def free(self) -> None:
        for buffer in {id(buffer): buffer for buffer in self.buffers.values()}.values():
            buffer.free()


def forward_launch(hip: Hip, problem: Problem, group: bool) -> Launch:
    """Buffers: R is the output [rows, heads, dim_v], LSE [sequences, heads, rows], in group mode [heads, rows]."""
    tensors = problem.tensors
    rows_q, rows_k = (sum(problem.q), sum(problem.k)) if group else (problem.q[0], problem.k[0])
    lse_shape = (problem.heads, rows_q) if group else (len(problem.q), problem.heads, rows_q)
    poison_o = np.full((sum(problem.q), problem.heads, problem.dim_v), 0x7FE1, np.uint16)
    buffers = {"R": hip.buffer(poison_o), "LSE": hip.buffer(np.full(lse_shape, np.nan, np.float32))}
    buffers |= {name: hip.buffer(tensors[name.lower()]) for name in ("Q", "K", "V")}
    for side, lengths in (("q", problem.q), ("k", problem.k)):
        starts = hip.buffer(offsets(lengths))
        buffers |= {f"ptr_{side}seq": starts, f"ptr_{side}seq_padding": starts}
    tile = FORWARD_ROWS[problem.dim]
    values: dict[str, int | float | Buffer] = {
        **buffers,
        **byte_strides(("Seqs", "Hs", "Bs"), rows_q, problem.heads, problem.dim),
        **byte_strides(("k_Seqs", "k_Hs", "k_Bs"), rows_k, problem.heads_k, problem.dim),
        **byte_strides(("v_Seqs", "v_Hs", "v_Bs"), rows_k, problem.heads_k, problem.dim_v),
        **byte_strides(("r_Seqs", "r_Hs", "r_Bs"), rows_q, problem.heads, problem.dim_v),
        "scalar": problem.scale,
        "Ts": tile * problem.heads * problem.dim * 2,
        "seq_len": max(problem.q),
        "kv_seq_len": max(problem.k),
        "qk_head_dim": problem.dim,
        "v_head_dim": problem.dim_v,
        "q_head_num": problem.heads,
        "gqa": problem.heads // problem.heads_k,
        "msk_opt": 5 if problem.mask == Mask() or problem.heads % 8 == 0 else 3,
        "lse": 1,
        "lse_Hs": rows_q * 4,
    }
    tiles = -(-max(problem.q) // tile)
    if problem.mask != Mask():
        tiles = -(-tiles // 2)  # a workgroup does one tile from either end
    grid = (problem.heads, len(problem.q), tiles) if group else (tiles, problem.heads, len(problem.q))
    return Launch(buffers, values, grid)
