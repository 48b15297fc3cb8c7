"""Runs one verification case in a process of its own, so that a crash or a hang costs that case only."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from typing import Any

import torch

import flash_attn_rocm
from flash_attn_rocm import ops, reference
from flash_attn_rocm.backends import choice_for
from flash_attn_rocm.limits import NAMED_DTYPES
from flash_attn_rocm.verification import features, gradients, profile
from flash_attn_rocm.verification.cases import Case


@dataclass(frozen=True)
class Result:
    """What came of one case; `status` is passed, failed, error, crashed or timeout."""

    case: Case
    status: str
    detail: str = ""
    backend: str = ""
    error: float = float("nan")
    allowed: float = float("nan")
    lse_error: float = float("nan")
    lse_allowed: float = float("nan")
    time_s: float = float("nan")
    launches: dict[str, int] | None = None
    executed: profile.Profile | None = None  # by the emulated GPU


def _shaped(shape: tuple[int, ...], dtype: torch.dtype, layout: str) -> torch.Tensor:
    """Random (batch, seqlen, heads, headdim) on the CPU in one of the memory layouts a caller may have."""
    batch, seqlen, heads, head_dim = shape
    if layout == "transposed":
        return torch.randn(batch, heads, seqlen, head_dim, dtype=torch.float32).to(dtype).transpose(1, 2)
    if layout == "misaligned":
        # One element of offset: rows start at addresses that are not multiples of 16 bytes.
        return torch.randn(batch * seqlen * heads * head_dim + 1).to(dtype)[1:].view(shape)
    return torch.randn(shape).to(dtype)


def make_inputs(case: Case, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q, k and v of a case; the same numbers in every run."""
    torch.manual_seed(0)
    dtype = NAMED_DTYPES[case.dtype]
    if case.layout == "packed":
        packed = torch.randn(case.batch, case.seqlen_q, 3, case.heads, case.head_dim).to(dtype).to(device)
        return packed[:, :, 0], packed[:, :, 1], packed[:, :, 2]
    shape_k = (case.batch, case.seqlen_k, case.heads_k, case.head_dim)
    q = _shaped((case.batch, case.seqlen_q, case.heads, case.head_dim), dtype, case.layout)
    k, v = (_shaped(shape_k, dtype, case.layout) for _ in range(2))
    return q.to(device), k.to(device), v.to(device)


def run_case(case: Case, device_name: str) -> Result:
    """Run one case in this process and compare it with float64."""
    device = torch.device(device_name)
    backend = choice_for(device.type, device.index).backend
    if not case.plain:
        start = time.perf_counter()
        comparison = (gradients if case.backward else features).run(case, device)
        return _result(case, comparison, backend, time.perf_counter() - start)
    q, k, v = make_inputs(case, device)
    start = time.perf_counter()
    returned = flash_attn_rocm.flash_attn_func(
        q, k, v, causal=case.causal, window_size=case.window, return_attn_probs=True
    )
    assert isinstance(returned, tuple)
    out, lse, _ = returned
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elapsed = time.perf_counter() - start
    mask = reference.Mask(case.window[0], 0 if case.causal else case.window[1])
    comparison = reference.compare(out, lse, q, k, v, reference.Scoring(case.head_dim**-0.5, mask))
    return _result(case, comparison, backend, elapsed)


def _result(case: Case, comparison: reference.Comparison, backend: str, elapsed: float) -> Result:
    return Result(
        case=case,
        status="passed" if comparison.passed else "failed",
        detail="" if comparison.passed else "error above what is allowed",
        backend=backend,
        error=comparison.error,
        allowed=comparison.allowed,
        lse_error=comparison.lse_error,
        lse_allowed=comparison.lse_allowed,
        time_s=elapsed,
        launches=json.loads(ops.read_json("fa_rocm_launch_counts")) if backend == "ck" else None,
        executed=profile.read_profile(),
    )


def _child(connection: Connection, case: Case, device_name: str, environment: dict[str, str]) -> None:
    # The server this process was forked from may be older than the parent's environment.
    os.environ.clear()
    os.environ.update(environment)
    try:
        result = run_case(case, device_name)
    except Exception as error:
        result = Result(case=case, status="error", detail=f"{type(error).__name__}: {error}")
    connection.send(result)
    connection.close()


def start_context() -> BaseContext:
    """A process context that imports torch once for all cases, where the platform can fork."""
    if sys.platform == "win32":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def _describe_exit(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        return f"killed by {signal.Signals(-exit_code).name}"
    return f"exited with code {exit_code} before it reported"


def run_isolated(context: Any, case: Case, device_name: str, timeout_s: float) -> Result:
    """Run one case in a child process; a dead or silent child becomes a result, not an exception."""
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(sender, case, device_name, dict(os.environ)), daemon=True)
    child.start()
    sender.close()
    try:
        if not receiver.poll(timeout_s):
            return Result(case=case, status="timeout", detail=f"no result after {timeout_s:g} s")
        result = receiver.recv()
        assert isinstance(result, Result)
        return result
    except EOFError:
        child.join(10)
        return Result(case=case, status="crashed", detail=_describe_exit(child.exitcode))
    finally:
        receiver.close()
        if child.is_alive():
            child.join(1)
        if child.is_alive():
            child.kill()
        child.join()
