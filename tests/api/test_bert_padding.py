"""Padded batches to packed tokens and back, against plain loops; derivatives in float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flash_attn_rocm import bert_padding
from flash_attn_rocm.errors import InputError

GENERATOR = torch.Generator().manual_seed(11)


def random(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=GENERATOR, dtype=torch.float64).to(dtype)


# 0 is padding, 1 a token, 2 a position that is allocated and not used.
LAYOUTS = st.integers(1, 4).flatmap(
    lambda seqlen: st.lists(st.lists(st.sampled_from([0, 1, 2]), min_size=seqlen, max_size=seqlen), max_size=4)
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the first draws wait for torch's own start
@given(LAYOUTS, st.sampled_from([torch.bool, torch.int64, torch.int32]), st.sampled_from([(), (3,), (2, 3)]))
def test_unpad_packs_what_a_loop_packs_and_pad_undoes_it(
    layout: list[list[int]], mask_dtype: torch.dtype, tail: tuple[int, ...]
) -> None:
    seqlen = len(layout[0]) if layout else 3
    table = torch.tensor(layout, dtype=torch.int64).reshape(len(layout), seqlen)
    hidden = random(len(layout), seqlen, *tail)
    mask, unused = (table == 1).to(mask_dtype), (table == 2).to(mask_dtype)
    for given_unused in (None, unused):
        packed, indices, cu_seqlens, longest, seqused = bert_padding.unpad_input(hidden, mask, given_unused)
        counted = (1,) if given_unused is None else (1, 2)
        places = [(b, i) for b, row in enumerate(layout) for i, kind in enumerate(row) if kind in counted]
        lengths = [sum(kind in counted for kind in row) for row in layout]
        assert packed.shape == (len(places), *tail)
        assert all(torch.equal(token, hidden[place]) for token, place in zip(packed, places, strict=True))
        assert indices.tolist() == [b * seqlen + i for b, i in places]
        assert cu_seqlens.tolist() == [sum(lengths[:b]) for b in range(len(layout) + 1)]
        assert (type(longest), longest) == (int, max(lengths, default=0))
        assert seqused.tolist() == [row.count(1) for row in layout]
        assert (indices.dtype, cu_seqlens.dtype, seqused.dtype) == (torch.int64, torch.int32, torch.int32)
        padded = bert_padding.pad_input(packed, indices, len(layout), seqlen)
        expected = torch.zeros_like(hidden)
        for place in places:
            expected[place] = hidden[place]
        assert torch.equal(padded, expected)


@given(st.lists(st.tuples(st.lists(st.integers(1, 3), max_size=3), st.integers(0, 2)), min_size=1, max_size=3))
def test_concatenated_sequences_are_packed_one_by_one(rows: list[tuple[list[int], int]]) -> None:
    seqlen = max(max(sum(lengths) + padding, len(lengths)) for lengths, padding in rows) or 1
    in_length = torch.tensor([lengths + [0] * (seqlen - len(lengths)) for lengths, _ in rows])
    hidden = random(len(rows), seqlen, 2)
    packed, indices, cu_seqlens, longest = bert_padding.unpad_input_for_concatenated_sequences(hidden, in_length)
    places = [(b, i) for b, (lengths, _) in enumerate(rows) for i in range(sum(lengths))]
    every_length = [length for lengths, _ in rows for length in lengths]
    assert indices.tolist() == [b * seqlen + i for b, i in places]
    assert all(torch.equal(token, hidden[place]) for token, place in zip(packed, places, strict=True))
    assert cu_seqlens.tolist() == [sum(every_length[:n]) for n in range(len(every_length) + 1)]
    assert cu_seqlens.dtype == torch.int32
    assert longest == max(every_length, default=0)


INDICES = torch.tensor([4, 0, 3])
FUNCTIONS = {
    "index_first_axis": lambda x: bert_padding.index_first_axis(x, INDICES),
    "index_first_axis, twice the same row": lambda x: bert_padding.index_first_axis(x, torch.tensor([1, 1, 4])),
    "index_put_first_axis": lambda x: bert_padding.index_put_first_axis(x[:3], INDICES, 6),
    "index_first_axis_residual": lambda x: bert_padding.index_first_axis_residual(x, INDICES),
    "pad_input": lambda x: bert_padding.pad_input(x[:3], INDICES, 3, 2),
    "unpad_input": lambda x: bert_padding.unpad_input(x[None], torch.tensor([[1, 0, 1, 1, 0]]))[0],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_are_those_of_finite_differences(name: str) -> None:
    x = random(5, 2, 3).requires_grad_()
    assert torch.autograd.gradcheck(FUNCTIONS[name], (x,))
    assert torch.autograd.gradgradcheck(FUNCTIONS[name], (x,))


def test_residual_is_the_input_itself_without_its_history() -> None:
    x = random(5, 3)
    _, residual = bert_padding.index_first_axis_residual(x, INDICES)
    assert residual.data_ptr() == x.data_ptr()
    assert torch.equal(residual, x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_values_pass_unchanged_in_every_dtype(dtype: torch.dtype) -> None:
    hidden = random(2, 4, 3, dtype=dtype)
    hidden[0, 1] = float("nan")  # padding may hold anything
    mask = torch.tensor([[1, 0, 1, 1], [1, 1, 0, 0]])
    packed, indices, *_ = bert_padding.unpad_input(hidden, mask)
    padded = bert_padding.pad_input(packed, indices, 2, 4)
    assert packed.dtype == padded.dtype == dtype
    assert torch.equal(padded, hidden.masked_fill(mask[..., None] == 0, 0.0))


def test_a_mask_of_another_shape_is_refused() -> None:
    with pytest.raises(InputError, match=r"attention_mask has shape \(2, 3\) and hidden_states \(2, 4, 1\)"):
        bert_padding.unpad_input(random(2, 4, 1), torch.ones(2, 3))
    with pytest.raises(InputError, match="unused_mask has shape"):
        bert_padding.unpad_input(random(2, 4, 1), torch.ones(2, 4), torch.ones(2, 3))
    with pytest.raises(InputError, match="attention_mask_in_length has shape"):
        bert_padding.unpad_input_for_concatenated_sequences(random(2, 4, 1), torch.ones(4, 2))


def round_trip(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    packed, indices, *_ = bert_padding.unpad_input(hidden, mask)
    return bert_padding.pad_input(packed * 2.0, indices, hidden.shape[0], hidden.shape[1])


@pytest.mark.parametrize("fullgraph", [False, True])
def test_compiled_round_trip_with_gradient(fullgraph: bool) -> None:
    """One graph where torch is told to keep sizes that depend on data in it; otherwise it breaks the graph there."""
    torch._dynamo.reset()
    compiled = torch.compile(round_trip, fullgraph=fullgraph, backend="aot_eager")
    masks = (torch.tensor([[1, 1, 0], [1, 0, 0]]), torch.tensor([[0, 1, 1], [1, 1, 1]]))
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=fullgraph, capture_scalar_outputs=fullgraph):
        for mask in masks:
            hidden = random(2, 3, 4).requires_grad_()
            out = compiled(hidden, mask)
            assert torch.equal(out, 2.0 * hidden * mask[..., None])
            (grad,) = torch.autograd.grad(out.sum(), hidden)
            assert torch.equal(grad, 2.0 * mask[..., None].expand(2, 3, 4).double())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
def test_a_gpu_gives_what_the_cpu_gives() -> None:
    hidden, mask = random(3, 5, 2), torch.tensor([[1, 1, 0, 0, 0], [0, 0, 0, 0, 0], [1, 0, 1, 1, 1]])
    packed, indices, cu_seqlens, longest, seqused = bert_padding.unpad_input(hidden.cuda(), mask.cuda())
    expected = bert_padding.unpad_input(hidden, mask)
    assert longest == expected[3]
    for got, want in zip((packed, indices, cu_seqlens, seqused), (*expected[:3], expected[4]), strict=True):
        assert got.is_cuda
        assert torch.equal(got.cpu(), want)
    padded = bert_padding.pad_input(packed, indices, 3, 5)
    assert torch.equal(padded.cpu(), hidden * mask[..., None])


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.float32])
def test_lengths_count_the_tokens_that_are_packed_whatever_the_masks_hold(dtype: torch.dtype) -> None:
    mask = torch.tensor([[2, 1, 0, 0], [-1, 0, 3, 0]]).to(dtype)
    unused = torch.tensor([[0, 1, 1, 0], [0, 0, 1, 0]]).to(dtype)  # both masks have two positions in common
    packed, indices, cu_seqlens, longest, seqused = bert_padding.unpad_input(random(2, 4, 3), mask, unused)
    assert packed.shape == (5, 3)
    assert indices.tolist() == [0, 1, 2, 4, 6]
    assert (cu_seqlens.tolist(), longest, seqused.tolist()) == ([0, 3, 5], 3, [2, 2])


@pytest.mark.parametrize("row", [[3, 2, 0, 0], [3, -1, 0, 0], [5, 0, 0, 0]])
def test_lengths_of_tokens_that_are_not_there_are_refused(row: list[int]) -> None:
    lengths = torch.tensor([[1, 0, 0, 0], row])
    with pytest.raises(InputError, match=r"attention_mask_in_length has lengths from .*up to seqlen, 4"):
        bert_padding.unpad_input_for_concatenated_sequences(random(2, 4, 3), lengths)
