"""The functions keep the signatures and defaults of flash_attn 2.x, which callers rely on by position."""

from __future__ import annotations

import inspect
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

import flash_attn_rocm
from flash_attn_rocm import flash_attn_interface

FUNCTIONS = tomllib.loads(Path(__file__).with_name("signatures.toml").read_text(encoding="utf-8"))["functions"]


@pytest.mark.parametrize("row", FUNCTIONS, ids=lambda row: row["name"])
def test_signature(row: dict[str, Any]) -> None:
    function = getattr(import_module(row["module"]), row["name"])
    parameters = inspect.signature(function).parameters.values()
    written = [p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters]
    assert written == row["parameters"]
    assert all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)


@pytest.mark.parametrize("row", [row for row in FUNCTIONS if row["name"].startswith("_")], ids=lambda row: row["name"])
def test_default_arguments_can_be_inspected(row: dict[str, Any]) -> None:
    """ring-flash-attention builds its calls from inspect.getfullargspec of the private functions."""
    function = getattr(flash_attn_interface, row["name"])
    spec = inspect.getfullargspec(function)
    assert spec.args == [parameter.partition("=")[0] for parameter in row["parameters"]]


def test_every_public_function_is_in_the_table() -> None:
    public = {name for name in flash_attn_rocm.__all__ if name.startswith("flash_attn_")}
    assert public == {row["name"] for row in FUNCTIONS if row["module"] == "flash_attn_rocm"}
    for name in public:
        assert getattr(flash_attn_interface, name) is getattr(flash_attn_rocm, name)


@pytest.mark.parametrize("name", ["forward", "backward", "varlen_forward", "varlen_backward"])
def test_wrapped_names_are_there(name: str) -> None:
    wrapped = getattr(flash_attn_interface, f"_wrapped_flash_attn_{name}")
    assert inspect.signature(wrapped) == inspect.signature(getattr(flash_attn_interface, f"_flash_attn_{name}"))


# flash_attn's classes by name, with the public function that `apply` takes the same leading arguments as.
CLASSES = {
    "FlashAttnFunc": "flash_attn_func",
    "FlashAttnKVPackedFunc": "flash_attn_kvpacked_func",
    "FlashAttnQKVPackedFunc": "flash_attn_qkvpacked_func",
    "FlashAttnVarlenFunc": "flash_attn_varlen_func",
    "FlashAttnVarlenKVPackedFunc": "flash_attn_varlen_kvpacked_func",
    "FlashAttnVarlenQKVPackedFunc": "flash_attn_varlen_qkvpacked_func",
}


def leading_arguments(function: str) -> list[Any]:
    """Tensors, and with varlen where their sequences begin and how long they are."""
    rows = (6,) if "varlen" in function else (2, 3)
    shapes = {"qkvpacked": [(3, 2, 8)], "kvpacked": [(2, 8), (2, 2, 8)], "": [(2, 8)] * 3}
    kind = next(kind for kind in shapes if kind in function)
    tensors = [torch.randn(*rows, *shape, dtype=torch.float16).requires_grad_() for shape in shapes[kind]]
    starts = torch.tensor([0, 2, 6], dtype=torch.int32)
    tables = ([starts], [4]) if kind == "qkvpacked" else ([starts] * 2, [4] * 2)
    return [*tensors, *tables[0], *tables[1]] if "varlen" in function else list(tensors)


@pytest.mark.parametrize("enabled", [(), (True,), (False,)], ids=["by default", "enabled", "disabled"])
@pytest.mark.parametrize("name", CLASSES)
def test_autograd_functions_take_all_arguments_by_position(name: str, enabled: tuple[bool, ...]) -> None:
    public = getattr(flash_attn_rocm, CLASSES[name])
    pages = [None] if "block_table" in inspect.signature(public).parameters else []
    # dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_softmax
    arguments = [*leading_arguments(CLASSES[name]), 0.0, 0.7, True, (2, 0), 1.5, None, True, True, *pages]
    out, lse, _ = getattr(flash_attn_interface, name).apply(*arguments, *enabled)
    expected, expected_lse, _ = public(*arguments)
    assert torch.equal(out, expected)
    assert torch.equal(lse, expected_lse)
    assert out.requires_grad == (enabled != (False,))
