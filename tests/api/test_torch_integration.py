"""The op inside torch: opcheck, autograd, torch.compile, several calls at once."""

from __future__ import annotations

import threading

import pytest
import torch

from flash_attn_rocm import backends, flash_attn_func, ops
from flash_attn_rocm.backends import dense
from tests.api.attention_reference import attention_fp64

DTYPES = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])


def inputs(
    device: str, dtype: torch.dtype = torch.bfloat16, *, seqlens: tuple[int, int] = (70, 90), grad: bool = False
) -> list[torch.Tensor]:
    """q with 4 heads, k and v with 2, head dim 64."""
    generator = torch.Generator().manual_seed(1)
    shapes = [(2, seqlens[0], 4, 64), (2, seqlens[1], 2, 64), (2, seqlens[1], 2, 64)]
    return [torch.randn(shape, generator=generator).to(dtype).to(device).requires_grad_(grad) for shape in shapes]


@DTYPES
@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
def test_opcheck(kernel_device: str, dtype: torch.dtype, grad: bool) -> None:
    """Schema, fake implementation, autograd registration and dynamic shapes agree with what the op does."""
    ops.load()
    arguments = {"softmax_scale": 0.125, "window_right": 0}
    torch.library.opcheck(
        torch.ops.flash_attn_rocm.fwd.default, tuple(inputs(kernel_device, dtype, grad=grad)), arguments
    )


@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(0, 5), (5, 0), (1, 1), (3, 130)])
def test_fake_results_have_the_real_ones_metadata(kernel_device: str, seqlen_q: int, seqlen_k: int) -> None:
    ops.load()
    q, k, v = inputs(kernel_device, seqlens=(seqlen_q, seqlen_k))
    real = torch.ops.flash_attn_rocm.fwd(q, k, v, softmax_scale=1.0)
    fake = torch.ops.flash_attn_rocm.fwd(*(tensor.to("meta") for tensor in (q, k, v)), softmax_scale=1.0)
    for one, other in zip(real, fake, strict=True):
        assert (one.shape, one.dtype, one.stride()) == (other.shape, other.dtype, other.stride())


def gradients(function: object, tensors: list[torch.Tensor], grad_out: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Gradients of the tensors for one call."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    out = function(*leaves)  # type: ignore[operator]
    return torch.autograd.grad(out, leaves, grad_out.to(out.dtype))


@DTYPES
@pytest.mark.parametrize(
    "arguments",
    [{}, {"causal": True}, {"window": (20, 5)}, {"scale": 0.3, "causal": True}],
    ids=["full", "causal", "window", "scale"],
)
def test_gradients_of_the_kernels_match_fp64(
    kernel_device: str, dtype: torch.dtype, arguments: dict[str, object]
) -> None:
    """Upstream's own bound for gradients is 10 times the same-dtype error; ours is 3 times."""
    tensors = inputs(kernel_device, dtype, seqlens=(70, 50))
    grad_out = torch.randn(tensors[0].shape, generator=torch.Generator().manual_seed(2)).to(kernel_device)
    renamed = {
        {"window": "window_size", "scale": "softmax_scale"}.get(key, key): value for key, value in arguments.items()
    }
    got = gradients(lambda *t: flash_attn_func(*t, **renamed), tensors, grad_out)
    exact = gradients(
        lambda *t: attention_fp64(*t, **arguments)[0], [t.cpu().double() for t in tensors], grad_out.cpu()
    )
    rounding = 2.0**-11 if dtype is torch.float16 else 2.0**-8
    for one, other in zip(got, exact, strict=True):
        assert (one.cpu().double() - other).abs().max() <= 3 * rounding * other.abs().max().clamp(min=1.0)


SCALES = [0.0, -0.3, -2.0, 2.0**-100]


@DTYPES
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("arguments", [{}, {"causal": True}, {"window": (20, 5)}], ids=["full", "causal", "window"])
def test_scales_of_zero_and_below(
    kernel_device: str, dtype: torch.dtype, scale: float, arguments: dict[str, object]
) -> None:
    """CK's softmax itself gives NaN for them (masked scores are -inf * 0)."""
    tensors = inputs(kernel_device, dtype, seqlens=(90, 70))
    renamed = {{"window": "window_size"}.get(key, key): value for key, value in arguments.items()}
    exact, exact_lse = attention_fp64(*[t.cpu() for t in tensors], scale=scale, **arguments)
    rounding = 2.0**-11 if dtype is torch.float16 else 2.0**-8
    out, lse, _ = flash_attn_func(*tensors, softmax_scale=scale, return_attn_probs=True, **renamed)
    assert (out.cpu().double() - exact).abs().max() <= 2 * rounding * exact.abs().max().clamp(min=1.0)
    torch.testing.assert_close(lse.cpu().double(), exact_lse, atol=1e-4, rtol=1e-5)
    grad_out = torch.randn(tensors[0].shape, generator=torch.Generator().manual_seed(2)).to(kernel_device)
    got = gradients(lambda *t: flash_attn_func(*t, softmax_scale=scale, **renamed), tensors, grad_out)
    doubles = [t.cpu().double() for t in tensors]
    wanted = gradients(lambda *t: attention_fp64(*t, scale=scale, **arguments)[0], doubles, grad_out.cpu())
    for one, other in zip(got, wanted, strict=True):
        assert (one.cpu().double() - other).abs().max() <= 3 * rounding * other.abs().max().clamp(min=1.0)


@pytest.mark.parametrize("wanted", ["out", "lse", "both"])
def test_the_backward_pass_is_fused_unless_lse_is_differentiated(
    kernel_device: str, monkeypatch: pytest.MonkeyPatch, wanted: str
) -> None:
    """The explicit path holds a float32 score matrix: autograd's zeros for an unused lse must not lead there.

    Where torch computes the gradients: CK's kernels compute those of out alone.
    """
    monkeypatch.setattr(backends, "backward_kernels", lambda device_type, device_index: None)
    used: list[str] = []
    for name in ("fused", "explicit"):
        function = getattr(dense, name)
        monkeypatch.setattr(dense, name, lambda *a, f=function, n=name, **k: (used.append(n), f(*a, **k))[1])
    tensors = inputs(kernel_device, grad=True)
    out, lse, _ = flash_attn_func(*tensors, causal=True, return_attn_probs=True)
    parts = {"out": [out], "lse": [lse], "both": [out, lse]}[wanted]
    sum(part.float().sum() for part in parts).backward()
    assert used == (["fused"] if wanted == "out" else ["explicit"])


def test_a_compiled_training_step_is_fused(kernel_device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("the O(S^2) path was taken")

    monkeypatch.setattr(dense, "explicit", fail)
    torch._dynamo.reset()
    compiled = torch.compile(lambda q, k, v: flash_attn_func(q, k, v), fullgraph=True, backend="aot_eager")
    tensors = inputs(kernel_device)
    gradients(compiled, tensors, torch.ones_like(tensors[0]))


def test_torch_still_marks_constant_results_as_we_do() -> None:
    """The backend's choice copies torch.compiler.assume_constant_result, which imports torch._dynamo."""
    marked = torch.compiler.assume_constant_result(lambda: 0)
    assert marked._dynamo_marked_constant is True
    assert backends.prepare._dynamo_marked_constant is True


def test_lse_is_differentiable_too(kernel_device: str) -> None:
    tensors = inputs(kernel_device, torch.float16)
    leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    _, lse, _ = flash_attn_func(*leaves, causal=True, return_attn_probs=True)
    got = torch.autograd.grad(lse.sum(), leaves[:2])
    doubles = [tensor.detach().cpu().double().requires_grad_() for tensor in tensors]
    _, exact_lse = attention_fp64(*doubles, causal=True)
    exact = torch.autograd.grad(exact_lse.sum(), doubles[:2])
    for one, other in zip(got, exact, strict=True):
        assert (one.cpu().double() - other).abs().max() <= 1e-3 * other.abs().max()


@pytest.mark.parametrize("backend", ["ck", "sdpa"])
def test_compiles_as_one_graph_with_dynamic_shapes(
    kernel_device: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLASH_ATTN_ROCM_BACKEND", backend)
    torch._dynamo.reset()

    def layer(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        out = flash_attn_func(q * 2, k, v, causal=True)
        return out + 1

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
    for seqlens in ((70, 90), (65, 65), (130, 40)):
        tensors = inputs(kernel_device, seqlens=seqlens)
        torch.testing.assert_close(compiled(*tensors), layer(*tensors))


@pytest.mark.parametrize("backend", ["ck", "sdpa"])
def test_compiles_with_changing_numbers(kernel_device: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scale and window become symbols when they change between calls; their checks must trace."""
    monkeypatch.setenv("FLASH_ATTN_ROCM_BACKEND", backend)
    torch._dynamo.reset()

    def layer(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, left: int) -> torch.Tensor:
        out = flash_attn_func(q, k, v, softmax_scale=scale, window_size=(left, 4))
        assert isinstance(out, torch.Tensor)
        return out

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
    tensors = inputs(kernel_device)
    for scale, left in ((0.125, 3), (0.25, 5), (-0.5, 9), (0.0, -1)):
        torch.testing.assert_close(compiled(*tensors, scale, left), layer(*tensors, scale, left))


def test_compiled_training_step(kernel_device: str) -> None:
    torch._dynamo.reset()
    tensors = inputs(kernel_device)
    grad_out = torch.ones_like(tensors[0])
    compiled = torch.compile(lambda q, k, v: flash_attn_func(q, k, v), fullgraph=True, backend="aot_eager")
    got = gradients(compiled, tensors, grad_out)
    expected = gradients(flash_attn_func, tensors, grad_out)
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_threads_may_call_at_the_same_time_with_the_same_tensors(kernel_device: str) -> None:
    tensors = inputs(kernel_device)
    expected = flash_attn_func(*tensors, causal=True)
    results: list[torch.Tensor] = []

    def call() -> None:
        results.append(flash_attn_func(*tensors, causal=True))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert all(torch.equal(result, expected) for result in results)
