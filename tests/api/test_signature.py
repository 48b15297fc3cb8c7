"""The functions keep the signatures and defaults of flash_attn 2.x, which callers rely on by position."""

from __future__ import annotations

import inspect
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

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


@pytest.mark.parametrize("name", CLASSES)
def test_autograd_functions_are_there(name: str) -> None:
    applied = list(inspect.signature(getattr(flash_attn_interface, name).apply).parameters)
    public = list(inspect.signature(getattr(flash_attn_rocm, CLASSES[name])).parameters)
    expected = ["return_softmax" if parameter == "return_attn_probs" else parameter for parameter in public]
    assert applied == [*expected, "is_grad_enabled"]
