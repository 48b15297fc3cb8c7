"""flash_attn_2_cuda: arguments by position in the order of the CK extension, and swapped ones refused."""

from __future__ import annotations

import inspect
from typing import Any

import flash_attn_2_cuda
import pytest
import torch

import flash_attn_rocm
from flash_attn_rocm.errors import InputError
from tests.api.attention_reference import attention_fp64

# flash_attn's csrc/flash_attn_ck at 2.8.4, mha_*.cpp; varlen_fwd's num_splits came with that version.
ORDER = {
    "fwd": "q k v out alibi_slopes p_dropout softmax_scale is_causal window_size_left window_size_right softcap "
    "return_softmax gen",
    "varlen_fwd": "q k v out cu_seqlens_q cu_seqlens_k seqused_k leftpad_k block_table alibi_slopes max_seqlen_q "
    "max_seqlen_k p_dropout softmax_scale zero_tensors is_causal window_size_left window_size_right softcap "
    "return_softmax gen num_splits",
    "bwd": "dout q k v out softmax_lse dq dk dv alibi_slopes p_dropout softmax_scale is_causal window_size_left "
    "window_size_right softcap deterministic gen rng_state",
    "varlen_bwd": "dout q k v out softmax_lse dq dk dv cu_seqlens_q cu_seqlens_k alibi_slopes max_seqlen_q "
    "max_seqlen_k p_dropout softmax_scale zero_tensors is_causal window_size_left window_size_right softcap "
    "deterministic gen rng_state",
    "fwd_kvcache": "q k_cache v_cache k v seqlens_k rotary_cos rotary_sin cache_batch_idx leftpad_k block_table "
    "alibi_slopes out softmax_scale is_causal window_size_left window_size_right softcap is_rotary_interleaved "
    "num_splits",
}

GENERATOR = torch.Generator().manual_seed(13)
SEQLENS_Q, SEQLENS_K = [5, 0, 9], [7, 3, 8]
SCALE, WINDOW, SOFTCAP = 0.11, (4, 2), 1.5
SLOPES = torch.tensor([0.5, 0.25, 0.1, 0.05])


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=GENERATOR).half()


Q, K, V, DOUT = (random(2, seqlen, heads, 64) for seqlen, heads in ((9, 4), (11, 2), (11, 2), (9, 4)))
PACKED_Q, PACKED_K, PACKED_V, PACKED_DOUT = (
    random(sum(lengths), heads, 64)
    for lengths, heads in ((SEQLENS_Q, 4), (SEQLENS_K, 2), (SEQLENS_K, 2), (SEQLENS_Q, 4))
)


def cumulative(lengths: list[int]) -> torch.Tensor:
    return torch.tensor([sum(lengths[:n]) for n in range(len(lengths) + 1)], dtype=torch.int32)


CU_Q, CU_K = cumulative(SEQLENS_Q), cumulative(SEQLENS_K)


def exact_batch(*, causal: bool = False) -> tuple[torch.Tensor, torch.Tensor, tuple[torch.Tensor, ...]]:
    """out, lse and the gradients of q, k, v for DOUT, in float64, with every feature on."""
    leaves = [tensor.double().requires_grad_() for tensor in (Q, K, V)]
    out, lse = attention_fp64(*leaves, causal=causal, window=WINDOW, scale=SCALE, softcap=SOFTCAP, slopes=SLOPES)
    return out.detach(), lse.detach(), torch.autograd.grad((out * DOUT.double()).sum(), leaves)


def exact_varlen() -> tuple[torch.Tensor, torch.Tensor, tuple[torch.Tensor, ...]]:
    """The same for the packed sequences; lse is (nheads, total)."""
    leaves = [tensor.double().requires_grad_() for tensor in (PACKED_Q, PACKED_K, PACKED_V)]
    outs, lses = [], []
    for n in range(len(SEQLENS_Q)):
        rows, keys = slice(CU_Q[n], CU_Q[n + 1]), slice(CU_K[n], CU_K[n + 1])
        out, lse = attention_fp64(
            leaves[0][None, rows],
            leaves[1][None, keys],
            leaves[2][None, keys],
            window=WINDOW,
            scale=SCALE,
            softcap=SOFTCAP,
            slopes=SLOPES,
        )
        outs.append(out[0])
        lses.append(lse[0])
    out = torch.cat(outs)
    grads = torch.autograd.grad((out * PACKED_DOUT.double()).sum(), leaves)
    return out.detach(), torch.cat(lses, dim=-1).detach(), grads


def close(got: torch.Tensor, exact: torch.Tensor, relative: float = 2.0**-8) -> None:
    assert got.shape == exact.shape
    assert (got.double() - exact).abs().max() <= relative * max(1.0, float(exact.abs().max()))


@pytest.mark.parametrize("name", ORDER)
def test_order_of_the_arguments(name: str) -> None:
    assert list(inspect.signature(getattr(flash_attn_2_cuda, name)).parameters) == ORDER[name].split()


@pytest.mark.parametrize("buffer", [False, True])
def test_fwd_then_bwd(buffer: bool) -> None:
    exact_out, exact_lse, exact_grads = exact_batch()
    given = torch.full_like(Q, torch.nan) if buffer else None
    result = flash_attn_2_cuda.fwd(Q, K, V, given, SLOPES, 0.0, SCALE, False, *WINDOW, SOFTCAP, False, None)
    out, lse, pattern, rng_state = result
    assert isinstance(result, list)
    assert (out is given) == buffer
    assert pattern.numel() == 0
    assert (rng_state.dtype, tuple(rng_state.shape)) == (torch.int64, (2,))
    close(out, exact_out)
    close(lse, exact_lse, 1e-4)
    buffers = [torch.full_like(tensor, torch.nan) if buffer else None for tensor in (Q, K, V)]
    *grads, softmax_d = flash_attn_2_cuda.bwd(
        DOUT, Q, K, V, out, lse, *buffers, SLOPES, 0.0, SCALE, False, *WINDOW, SOFTCAP, True, None, None
    )
    for got, exact, target in zip(grads, exact_grads, buffers, strict=True):
        assert (got is target) == buffer
        close(got, exact)
    close(softmax_d, (DOUT.double() * exact_out).sum(-1).transpose(1, 2))


def test_causal_is_where_it_should_be() -> None:
    exact_out, _, exact_grads = exact_batch(causal=True)
    out, lse, *_ = flash_attn_2_cuda.fwd(Q, K, V, None, SLOPES, 0.0, SCALE, True, *WINDOW, SOFTCAP, False, None)
    close(out, exact_out)
    *grads, _ = flash_attn_2_cuda.bwd(
        DOUT, Q, K, V, out, lse, None, None, None, SLOPES, 0.0, SCALE, True, *WINDOW, SOFTCAP, False, None, None
    )
    for got, exact in zip(grads, exact_grads, strict=True):
        close(got, exact)


def test_varlen_fwd_then_varlen_bwd() -> None:
    exact_out, exact_lse, exact_grads = exact_varlen()
    out, lse, _, _ = flash_attn_2_cuda.varlen_fwd(
        PACKED_Q, PACKED_K, PACKED_V, None, CU_Q, CU_K, None, None, None, SLOPES,
        9, 8, 0.0, SCALE, False, False, *WINDOW, SOFTCAP, False, None, 0,
    )  # fmt: skip
    close(out, exact_out)
    close(lse, exact_lse, 1e-4)
    *grads, _ = flash_attn_2_cuda.varlen_bwd(
        PACKED_DOUT, PACKED_Q, PACKED_K, PACKED_V, out, lse, None, None, None, CU_Q, CU_K, SLOPES,
        9, 8, 0.0, SCALE, False, False, *WINDOW, SOFTCAP, False, None, None,
    )  # fmt: skip
    for got, exact in zip(grads, exact_grads, strict=True):
        close(got, exact)


def test_used_and_padded_keys_of_varlen_fwd() -> None:
    """Sequence n uses keys leftpad_k[n] up to seqused_k[n] of its own."""
    used, padded = torch.tensor([6, 2, 8], dtype=torch.int32), torch.tensor([1, 0, 3], dtype=torch.int32)
    out, *_ = flash_attn_2_cuda.varlen_fwd(
        PACKED_Q, PACKED_K, PACKED_V, None, CU_Q, CU_K, used, padded, None, None,
        9, 8, 0.0, SCALE, False, False, -1, -1, 0.0, False, None,
    )  # fmt: skip
    for n in (0, 2):
        keys = slice(int(CU_K[n] + padded[n]), int(CU_K[n] + used[n]))
        rows = slice(CU_Q[n], CU_Q[n + 1])
        exact, _ = attention_fp64(PACKED_Q[None, rows], PACKED_K[None, keys], PACKED_V[None, keys], scale=SCALE)
        close(out[rows], exact[0])


def test_varlen_fwd_reads_pages() -> None:
    """The same keys in pages that stand in another order."""
    pages, values = random(5, 4, 2, 64), random(5, 4, 2, 64)
    table = torch.tensor([[3, 0], [1, 4], [2, 1]], dtype=torch.int32)
    out, *_ = flash_attn_2_cuda.varlen_fwd(
        PACKED_Q, pages, values, None, CU_Q, CU_K, None, None, table, None,
        9, 8, 0.0, SCALE, False, False, -1, -1, 0.0, False, None, 0,
    )  # fmt: skip
    for n in (0, 2):
        key, value = (source[table[n].long()].reshape(1, 8, 2, 64)[:, : SEQLENS_K[n]] for source in (pages, values))
        rows = slice(CU_Q[n], CU_Q[n + 1])
        close(out[rows], attention_fp64(PACKED_Q[None, rows], key, value, scale=SCALE)[0][0])


def test_zero_tensors_clears_rows_of_no_sequence() -> None:
    longer = torch.cat((PACKED_Q, torch.full((2, 4, 64), torch.nan).half()))
    out, *_ = flash_attn_2_cuda.varlen_fwd(
        longer, PACKED_K, PACKED_V, None, CU_Q, CU_K, None, None, None, None,
        9, 8, 0.0, SCALE, True, False, -1, -1, 0.0, False, None, 0,
    )  # fmt: skip
    assert (out[14:] == 0).all()
    assert torch.isfinite(out).all()


def test_dropout_is_repeated_by_bwd_from_the_rng_state() -> None:
    """Both against the weights that the returned map keeps: r <= floor(255 (1 - p)), divided by 1 - p."""
    p = 0.3
    out, lse, randoms, rng_state = flash_attn_2_cuda.fwd(Q, K, V, None, None, p, SCALE, False, -1, -1, 0.0, True, None)
    kept = (randoms.double() <= int(255 * (1 - p))) / (1 - p)
    leaves = [tensor.double().requires_grad_() for tensor in (Q, K, V)]
    q, k, v = (tensor.transpose(1, 2) for tensor in leaves)
    k, v = (tensor.repeat_interleave(2, dim=1) for tensor in (k, v))
    exact = ((torch.softmax(q @ k.transpose(-1, -2) * SCALE, dim=-1) * kept) @ v).transpose(1, 2)
    expected = torch.autograd.grad((exact * DOUT.double()).sum(), leaves)
    close(out, exact.detach())
    *grads, _ = flash_attn_2_cuda.bwd(
        DOUT, Q, K, V, out, lse, None, None, None, None, p, SCALE, False, -1, -1, 0.0, False, None, rng_state
    )
    for got, want in zip(grads, expected, strict=True):
        close(got, want)


def test_the_generator_that_is_given_draws_the_seed() -> None:
    def state(seed: int) -> list[int]:
        generator = torch.Generator().manual_seed(seed)
        result = flash_attn_2_cuda.fwd(Q, K, V, None, None, 0.3, SCALE, False, -1, -1, 0.0, False, generator)
        return list(result[3].tolist())

    torch.manual_seed(0)
    default = torch.random.get_rng_state()
    assert state(5) == state(5) != state(6)
    assert torch.equal(default, torch.random.get_rng_state())


@pytest.mark.parametrize("buffer", [False, True])
def test_fwd_kvcache(buffer: bool) -> None:
    """Everything by position at once, against flash_attn_with_kvcache with names."""
    names: dict[str, Any] = {
        "k": random(2, 3, 2, 64),
        "v": random(2, 3, 2, 64),
        "cache_seqlens": torch.tensor([6, 4], dtype=torch.int32),
        "rotary_cos": random(16, 16),
        "rotary_sin": random(16, 16),
        "cache_batch_idx": torch.tensor([2, 0], dtype=torch.int32),
        "cache_leftpad": torch.tensor([1, 2], dtype=torch.int32),
        "alibi_slopes": SLOPES,
        "softmax_scale": SCALE,
        "causal": True,
        "window_size": WINDOW,
        "softcap": SOFTCAP,
        "rotary_interleaved": False,
        "num_splits": 1,
        "return_softmax_lse": True,
    }
    q, caches = random(2, 3, 4, 64), [random(3, 12, 2, 64) for _ in range(2)]
    mine = [cache.clone() for cache in caches]
    expected, expected_lse = flash_attn_rocm.flash_attn_with_kvcache(q, *caches, **names)
    out = torch.full_like(q, torch.nan) if buffer else None
    got, lse = flash_attn_2_cuda.fwd_kvcache(
        q, *mine, names["k"], names["v"], names["cache_seqlens"], names["rotary_cos"], names["rotary_sin"],
        names["cache_batch_idx"], names["cache_leftpad"], None, SLOPES, out, SCALE, True, *WINDOW, SOFTCAP, False, 1,
    )  # fmt: skip
    assert (got is out) == buffer
    assert torch.equal(got, expected)
    assert torch.equal(lse, expected_lse)
    assert all(torch.equal(one, other) for one, other in zip(mine, caches, strict=True))


SWAPPED: dict[str, tuple[str, tuple[Any, ...]]] = {
    "scale before dropout": ("fwd", (Q, K, V, None, None, SCALE, 0.0, False, -1, -1, 0.0, False, None)),
    "dropout of 1": ("fwd", (Q, K, V, None, None, 1.0, 0.0, False, -1, -1, 0.0, False, None)),
    "large scale as dropout": ("fwd", (Q, K, V, None, None, 8.0, 0.1, False, -1, -1, 0.0, False, None)),
    "causal before scale": ("fwd", (Q, K, V, None, None, 0.0, True, SCALE, -1, -1, 0.0, False, None)),
    "bwd": (
        "bwd",
        (DOUT, Q, K, V, Q, Q, None, None, None, None, SCALE, 0.0, False, -1, -1, 0.0, False, None, None),
    ),
    "varlen_fwd": (
        "varlen_fwd",
        (PACKED_Q, PACKED_K, PACKED_V, None, CU_Q, CU_K, None, None, None, None, 9, 8, SCALE, 0.0, False, False, -1,
         -1, 0.0, False, None, 0),
    ),
    "varlen_fwd without zero_tensors": (
        "varlen_fwd",
        (PACKED_Q, PACKED_K, PACKED_V, None, CU_Q, CU_K, None, None, None, None, 9, 8, 0.0, SCALE, False, -1, -1, 0.0,
         False, None),
    ),
    "varlen_bwd": (
        "varlen_bwd",
        (PACKED_DOUT, PACKED_Q, PACKED_K, PACKED_V, PACKED_Q, PACKED_Q, None, None, None, CU_Q, CU_K, None, 9, 8, SCALE,
         0.0, False, False, -1, -1, 0.0, False, None, None),
    ),
    "fwd_kvcache": (
        "fwd_kvcache",
        (Q, K, V, None, None, None, None, None, None, None, None, None, None, 0.0, False, -1, -1, 0.0, True, 0),
    ),
    "fwd_kvcache, causal before scale": (
        "fwd_kvcache",
        (Q, K, V, None, None, None, None, None, None, None, None, None, None, False, SCALE, -1, -1, 0.0, True, 0),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SWAPPED)
def test_arguments_that_look_swapped_are_refused_with_the_right_order(case: str) -> None:
    name, arguments = SWAPPED[case]
    with pytest.raises(InputError) as caught:
        getattr(flash_attn_2_cuda, name)(*arguments)
    assert str(caught.value).startswith(f"{name}: ")
    assert ", ".join(ORDER[name].split()) in str(caught.value)


@pytest.mark.parametrize("name", ["fwd", "varlen_fwd", "fwd_kvcache"])
@pytest.mark.parametrize(
    "change", [lambda t: t.float(), lambda t: t[None].expand(3, *t.shape).clone(), lambda t: t.to("meta")]
)
def test_out_of_another_shape_dtype_or_device_is_refused_before_anything_is_written(name: str, change: Any) -> None:
    cache = torch.zeros(2, 20, 2, 64).half()
    out = change(torch.zeros_like(PACKED_Q if name == "varlen_fwd" else Q))
    arguments: dict[str, tuple[Any, ...]] = {
        "fwd": (Q, K, V, out, None, 0.0, SCALE, False, -1, -1, 0.0, False, None),
        "varlen_fwd": (
            *(PACKED_Q, PACKED_K, PACKED_V, out, CU_Q, CU_K, None, None, None, None, 9, 8),
            *(0.0, SCALE, False, False, -1, -1, 0.0, False, None, 0),
        ),
        "fwd_kvcache": (
            *(Q, cache, cache, K, V, torch.tensor([1, 2], dtype=torch.int32), None, None, None, None, None, None, out),
            *(SCALE, False, -1, -1, 0.0, True, 0),
        ),
    }
    with pytest.raises(InputError, match=r"out is torch.float.* on .*; expected that of q: torch.float16"):
        getattr(flash_attn_2_cuda, name)(*arguments[name])
    assert not cache.any()


def test_dropout_that_is_no_number_is_named() -> None:
    with pytest.raises(InputError, match="dropout_p is None"):
        flash_attn_2_cuda.fwd(Q, K, V, None, None, None, SCALE, False, -1, -1, 0.0, False, None)
