"""Options of the commands that measure: shapes, directions, device and effort."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any

import torch

from flash_attn_rocm import environment, paths
from flash_attn_rocm.archs import load_arch
from flash_attn_rocm.benchmark.problem import Problem
from flash_attn_rocm.benchmark.run import DIRECTIONS
from flash_attn_rocm.benchmark.timing import Effort
from flash_attn_rocm.errors import InputError
from flash_attn_rocm.limits import NAMED_DTYPES

SEQLENS = (4096, 8192, 16384, 32768)
_LONGEST_S = 3600.0


def _positive(text: str) -> int:
    if not (text.isdecimal() and int(text) >= 1):
        raise argparse.ArgumentTypeError(f"{text}; allowed: whole numbers from 1")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= _LONGEST_S:
        raise argparse.ArgumentTypeError(f"{text}; allowed: 0 to {_LONGEST_S:g} seconds")
    return value


def add_options(parser: Any, seqlens: Sequence[int] = SEQLENS) -> None:
    """Add the options; `seqlens` are the default."""
    parser.add_argument("--seqlens", metavar="S", type=_positive, nargs="+", default=list(seqlens), help="%(default)s")
    parser.add_argument("--batch", metavar="B", type=_positive, default=1, help="sequences (%(default)s)")
    parser.add_argument("--heads", metavar="H", type=_positive, default=16, help="heads of q (%(default)s)")
    parser.add_argument("--heads-k", metavar="H", type=_positive, help="heads of k and v (those of q)")
    parser.add_argument("--headdim", metavar="D", type=_positive, default=128, help="head dim (%(default)s)")
    parser.add_argument("--dtype", choices=list(NAMED_DTYPES), default="bf16", help="%(default)s")
    parser.add_argument("--causal", action="store_true", help="mask what lies ahead")
    parser.add_argument("--direction", choices=[*DIRECTIONS, "both"], default="both", help="%(default)s")
    parser.add_argument("--device", help="torch device: cuda, cuda:1, cpu (the GPU)")
    parser.add_argument("--emulate", metavar="GFX", help="try the command on the emulated GPU: its times mean nothing")
    parser.add_argument("--warmup", metavar="S", type=_seconds, default=0.5, help="seconds before timing (%(default)s)")
    parser.add_argument("--measure", metavar="S", type=_seconds, default=1.0, help="seconds of timing (%(default)s)")


def problems(arguments: argparse.Namespace) -> list[Problem]:
    """The shapes that are asked for.

    Raises:
        InputError: the heads of q are no multiple of those of k.
    """
    heads_k = arguments.heads_k or arguments.heads
    if arguments.heads % heads_k:
        raise InputError(f"--heads-k {heads_k} does not divide --heads {arguments.heads}")
    shape = (arguments.batch, arguments.heads, heads_k, arguments.headdim, arguments.dtype, arguments.causal)
    return [Problem(seqlen, *shape) for seqlen in arguments.seqlens]


def directions(arguments: argparse.Namespace) -> tuple[str, ...]:
    """The directions that are asked for."""
    return DIRECTIONS if arguments.direction == "both" else (arguments.direction,)


def effort(arguments: argparse.Namespace) -> Effort:
    """How long to warm up and to measure."""
    return Effort(arguments.warmup, arguments.measure)


def device(arguments: argparse.Namespace) -> torch.device:
    """The device that is asked for; emulating starts here, with CPU tensors.

    Raises:
        InputError: there is no GPU and no other device is asked for, or it does not exist.
        UnsupportedGpuError: the GPU to emulate is unknown.
        LibraryNotFoundError: the emulated runtime is not installed.
    """
    if arguments.emulate:
        os.environ[environment.EMULATE] = load_arch(arguments.emulate, "--emulate").gfx
        paths.hip_library_path()
    emulated = bool(environment.emulated_gpus())
    name = arguments.device or ("cpu" if emulated else "cuda")
    try:
        chosen = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"--device {name}: {str(error).splitlines()[0]}") from error
    if chosen.type not in ("cpu", "cuda") or (emulated and chosen.type != "cpu"):
        raise InputError(
            f"--device {name}: allowed: {'cpu while a GPU is emulated' if emulated else 'cuda, cuda:N, cpu'}"
        )
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise InputError(
            f"torch {torch.__version__} sees no GPU; `flash-attn-rocm info` says why. To try the command without one: "
            "--device cpu or --emulate gfx1201, with --seqlens of a few hundred"
        )
    if chosen.index is not None and chosen.type == "cuda" and chosen.index >= torch.cuda.device_count():
        raise InputError(f"--device {name}: torch sees {torch.cuda.device_count()} GPUs, from cuda:0")
    return chosen
