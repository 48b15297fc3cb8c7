"""transformers with attn_implementation="flash_attention_2" through the drop-in flash_attn: small random models.

transformers refuses that setting where it sees no GPU. On a machine without one it is told that there is one, and the
model's CPU tensors then take the same way; where torch does see a GPU, the same tests run on it, nothing told.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import flash_attn_rocm
from tests.api.locked_packages import PIP, locked_packages

ROOT = Path(__file__).resolve().parents[2]
# |logits - float32 logits| may be this many times what transformers' own attention has in the same dtype.
ERROR_FACTOR = 2.0
ERROR_FLOOR = 1e-4


@pytest.fixture(scope="module")
def drop_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The distribution flash_attn as pip installs it, with the metadata that transformers asks for."""
    folder = tmp_path_factory.mktemp("drop_in")
    shutil.copytree(ROOT / "compat", folder / "source")
    options = ["--no-build-isolation", "--no-index", "--target", str(folder / "site")]
    subprocess.run([*PIP, *options, str(folder / "source")], check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder / "site"))
        yield


@pytest.fixture(scope="module")
def transformers(drop_in: None) -> Iterator[Any]:
    """transformers (an installed one first), imported once flash_attn can be found: it remembers what it finds."""
    with pytest.MonkeyPatch.context() as patch:
        if importlib.util.find_spec("transformers") is None:
            patch.setattr(sys, "path", [*sys.path, str(locked_packages("transformers"))])
        yield importlib.import_module("transformers")


GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")


def _let_in(device: str, patch: pytest.MonkeyPatch) -> None:
    """Forget what transformers found before; for CPU tensors, tell it of a GPU."""
    from transformers import modeling_flash_attention_utils as attention
    from transformers.utils import import_utils

    if device == "cpu":
        patch.setattr(import_utils, "is_torch_cuda_available", lambda: True)
        row = attention.FLASH_ATTENTION_COMPATIBILITY_MATRIX[2]
        patch.setitem(row, "supported_devices", ((lambda: True, "cpu"),))
    import_utils.is_flash_attn_2_available.cache_clear()
    patch.setattr(attention, "_loaded_implementation", None)


@pytest.fixture
def forget(transformers: Any) -> Iterator[None]:
    """Afterwards, let transformers look for the package anew."""
    yield
    from transformers.utils import import_utils

    import_utils.is_flash_attn_2_available.cache_clear()


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=GPU)])
def device(request: pytest.FixtureRequest, forget: None, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the models run."""
    _let_in(request.param, monkeypatch)
    return str(request.param)


SIZES = {
    "vocab_size": 61,
    "hidden_size": 128,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 128,
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "mistral, window 5": ("Mistral", {"sliding_window": 5}),
    "gemma2, window 5 and softcap": (
        "Gemma2",
        {"sliding_window": 5, "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 64},
    ),
}
# transformers' own implementation to compare with: its sdpa has no softcap.
REFERENCE = {"Llama": "sdpa", "Mistral": "sdpa", "Gemma2": "eager"}


def build(transformers: Any, name: str, implementation: str, dtype: torch.dtype, device: str) -> Any:
    """The model, always with the same weights, which bfloat16 holds exactly."""
    kind, arguments = MODELS[name]
    # An initialisation so wide that attention is far from uniform.
    config = getattr(transformers, f"{kind}Config")(**SIZES, **arguments, initializer_range=0.2, attention_dropout=0.0)
    torch.manual_seed(3)
    model = getattr(transformers, f"{kind}ForCausalLM")(config).to(torch.bfloat16)
    model.config._attn_implementation = "eager"
    model = model.to(dtype).to(device)
    model.set_attn_implementation(implementation)
    assert model.config._attn_implementation == implementation
    return model.eval()


def inputs(layout: str, device: str) -> tuple[dict[str, Any], torch.Tensor]:
    """Arguments of the model, and which of the positions count."""
    tokens = torch.randint(0, SIZES["vocab_size"], (3, 11), generator=torch.Generator().manual_seed(1), device="cpu")
    lengths = torch.tensor([11, 4, 7])[:, None]
    positions = torch.arange(11)
    if layout == "unpadded":
        return {"input_ids": tokens.to(device)}, torch.ones(3, 11, dtype=torch.bool)
    if layout == "packed":  # three sequences in one row, told apart by their positions
        row = torch.cat([torch.arange(4), torch.arange(6), torch.arange(1)])[None]
        # With a cache, transformers' own attention takes them for one sequence.
        arguments = {"input_ids": tokens[:1].to(device), "position_ids": row.to(device), "use_cache": False}
        return arguments, torch.ones(1, 11, dtype=torch.bool)
    mask = positions < lengths if layout == "right padding" else positions >= 11 - lengths
    return {"input_ids": tokens.to(device), "attention_mask": mask.long().to(device)}, mask


LAYOUTS = ["unpadded", "right padding", "left padding", "packed"]


def check(got: torch.Tensor, same_dtype: torch.Tensor, exact: torch.Tensor) -> None:
    """As near to float32 as transformers' own attention in the same dtype, within a factor."""
    assert torch.isfinite(got).all()
    error = (got.double() - exact.double()).abs().max()
    allowed = ERROR_FACTOR * (same_dtype.double() - exact.double()).abs().max() + ERROR_FLOOR
    assert error <= allowed, f"error {error:.3e}, allowed {allowed:.3e}"


def three_models(transformers: Any, name: str, dtype: torch.dtype, device: str) -> list[Any]:
    """On flash_attn; on transformers' own attention in the same dtype; on that in float32."""
    own = REFERENCE[MODELS[name][0]]
    return [
        build(transformers, name, "flash_attention_2", dtype, device),
        build(transformers, name, own, dtype, device),
        build(transformers, name, own, torch.float32, device),
    ]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_transformers_own_attention(
    transformers: Any, device: str, name: str, dtype: torch.dtype, layout: str
) -> None:
    arguments, counted = inputs(layout, device)
    with torch.no_grad():
        logits = [model(**arguments).logits.cpu()[counted] for model in three_models(transformers, name, dtype, device)]
    check(*logits)
    from transformers import modeling_flash_attention_utils as attention

    called = (attention._flash_fn, attention._flash_varlen_fn)
    assert called == (flash_attn_rocm.flash_attn_func, flash_attn_rocm.flash_attn_varlen_func)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["llama", "mistral, window 5"])
def test_logits_through_the_kernels(
    transformers: Any,
    forget: None,
    kernel_device: str,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    dtype: torch.dtype,
    layout: str,
) -> None:
    """The CK kernels themselves: on an AMD GPU, else on the emulated one."""
    _let_in(kernel_device, monkeypatch)
    arguments, counted = inputs(layout, kernel_device)
    with torch.no_grad():
        models = three_models(transformers, name, dtype, kernel_device)
        check(*(model(**arguments).logits.cpu()[counted] for model in models))


@pytest.mark.parametrize("layout", ["unpadded", "left padding"])
@pytest.mark.parametrize("name", MODELS)
def test_decoding_with_a_cache(transformers: Any, device: str, name: str, layout: str) -> None:
    """A prompt, then three tokens of which each sees the cache: query lengths of 1 against longer keys."""
    arguments, _ = inputs(layout, device)
    mask = arguments.get("attention_mask", torch.ones(3, 11, dtype=torch.long, device=device))
    steps = []
    for model in three_models(transformers, name, torch.bfloat16, device):
        cache, logits = None, []
        for start, stop in ((0, 8), (8, 9), (9, 10), (10, 11)):
            positions = (mask.cumsum(1) - 1).clamp(min=0)[:, start:stop]
            with torch.no_grad():
                out = model(
                    input_ids=arguments["input_ids"][:, start:stop],
                    attention_mask=mask[:, :stop] if layout != "unpadded" else None,
                    position_ids=positions,
                    cache=cache,
                    use_cache=True,
                )
            cache = out.cache
            logits.append(out.logits[:, -1].cpu())
        steps.append(torch.stack(logits))
    check(*steps)


@pytest.mark.parametrize("layout", ["unpadded", "right padding", "packed"])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_a_loss(transformers: Any, device: str, name: str, layout: str) -> None:
    arguments, counted = inputs(layout, device)
    gradients = []
    for model in three_models(transformers, name, torch.bfloat16, device):
        logits = model.train()(**arguments).logits.float()
        torch.logsumexp(logits, dim=-1)[counted.to(device)].sum().backward()
        gradients.append(
            torch.cat([layer.self_attn.q_proj.weight.grad.float().flatten().cpu() for layer in model.model.layers])
        )
    check(*gradients)


def test_transformers_finds_the_package(transformers: Any, device: str) -> None:
    from transformers import utils

    assert utils.is_flash_attn_2_available()
    assert not utils.is_flash_attn_3_available()
    assert not utils.is_flash_attn_4_available()
    assert utils.is_flash_attn_greater_or_equal("2.6.3")
    assert importlib.metadata.packages_distributions()["flash_attn"] == ["flash_attn"]


@pytest.mark.parametrize("sliding_window", [None, 4])
@pytest.mark.parametrize("layout", ["unpadded", "left padding", "right padding"])
def test_the_function_that_models_call(transformers: Any, device: str, layout: str, sliding_window: int | None) -> None:
    """_flash_attention_forward with grouped heads against torch's attention with an explicit mask, row by row."""
    from transformers import modeling_flash_attention_utils as attention

    generator = torch.Generator().manual_seed(7)
    q, k, v = (torch.randn(3, 11, heads, 64, generator=generator).to(device, torch.float16) for heads in (4, 2, 2))
    arguments, counted = inputs(layout, device)
    out = attention._flash_attention_forward(
        q,
        k,
        v,
        arguments.get("attention_mask"),
        query_length=11,
        is_causal=True,
        sliding_window=sliding_window,
        attn_implementation="flash_attention_2",
    )
    i, j = torch.arange(11)[:, None], torch.arange(11)
    keep = (j <= i) & (i - j < (sliding_window or 11)) & counted[:, None, :]
    exact = torch.nn.functional.scaled_dot_product_attention(
        *(tensor.transpose(1, 2).double().cpu() for tensor in (q, k, v)), attn_mask=keep[:, None], enable_gqa=True
    ).transpose(1, 2)
    assert (out.double().cpu() - exact)[counted].abs().max() <= 4e-3
    assert (out[~counted.to(device)] == 0).all()
