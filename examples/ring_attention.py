"""Attention to a sequence split among GPUs: the package ring-flash-attn, unmodified, on this package's functions.

    pip install ring-flash-attn==0.1.8 transformers==4.53.3  # it imports flash_attn: flash-attn-rocm-compat
    torchrun --nproc-per-node 4 examples/ring_attention.py --seqlen 65536

One process a GPU, which exchange keys and values through RCCL; on a machine without GPUs, through gloo on the CPU, with
FLASH_ATTN_ROCM_EMULATE=gfx1201 on emulated GPUs. The first process also computes the whole sequence alone, compares
output and gradients with that, and fails where they differ.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable

import ring_flash_attn
import torch
import torch.distributed as dist
from flash_attn import flash_attn_func
from torch import Tensor

# Of the norms: two roundings to bfloat16 more than one process has.
ALLOWED = 0.01


def _ring(parts: list[Tensor]) -> list[Tensor]:
    """Process r has the r-th part."""
    return parts


def _zigzag(parts: list[Tensor]) -> list[Tensor]:
    """Twice as many parts; process r has the r-th from either end: under a causal mask all have as much to do."""
    return [torch.cat([first, last], dim=1) for first, last in zip(parts, reversed(parts), strict=True)]


# The function, how many parts there are for each process, and how they are dealt to the processes.
METHODS: dict[str, tuple[Callable[..., Tensor], int, Callable[[list[Tensor]], list[Tensor]]]] = {
    "ring": (ring_flash_attn.ring_flash_attn_func, 1, _ring),
    "zigzag": (ring_flash_attn.zigzag_ring_flash_attn_func, 2, _zigzag),
}


def mine(whole: Tensor, method: str) -> Tensor:
    """The rows (dimension 1) of the sequence that this process has."""
    _, parts, deal = METHODS[method]
    return deal(list(whole.chunk(parts * dist.get_world_size(), dim=1)))[dist.get_rank()].contiguous()


def _relative_error(found: Tensor, wanted: Tensor) -> float:
    return float((found.float() - wanted.float()).detach().norm() / wanted.float().detach().norm())


def compare(method: str, tensors: list[Tensor], dout: Tensor) -> float:
    """The largest error of this process's output and gradients, relative to one process that has the whole sequence."""
    whole = [tensor.clone().requires_grad_() for tensor in tensors]
    out = flash_attn_func(*whole, causal=True)
    wanted = [out, *torch.autograd.grad(out, whole, dout)]
    leaves = [mine(tensor, method).requires_grad_() for tensor in tensors]
    ring_out = METHODS[method][0](*leaves, causal=True)
    found = [ring_out, *torch.autograd.grad(ring_out, leaves, mine(dout, method))]
    return max(_relative_error(part, mine(full, method)) for part, full in zip(found, wanted, strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seqlen", type=int, default=4096, help="rows of the whole sequence (%(default)s)")
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--headdim", type=int, default=128)
    arguments = parser.parse_args()
    on_gpu = torch.cuda.is_available() and not os.environ.get("FLASH_ATTN_ROCM_EMULATE")
    if on_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if on_gpu else "gloo")  # torch calls RCCL nccl
    torch.manual_seed(0)
    shape = (1, arguments.seqlen, arguments.heads, arguments.headdim)
    device = "cuda" if on_gpu else "cpu"
    *tensors, dout = (torch.randn(shape, dtype=torch.bfloat16).to(device) for _ in range(4))
    worst = torch.zeros(len(METHODS), device=device)
    for number, method in enumerate(METHODS):
        worst[number] = compare(method, tensors, dout)
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        for method, error in zip(METHODS, worst.tolist(), strict=True):
            print(f"{method}: {dist.get_world_size()} processes differ from one by {error:.2g}, allowed {ALLOWED}")
    dist.destroy_process_group()
    return int(not bool((worst <= ALLOWED).all()))


if __name__ == "__main__":
    sys.exit(main())
