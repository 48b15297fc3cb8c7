"""The drop-in modules: every name that programs import, each the function of flash_attn_rocm, and how they use them."""

from __future__ import annotations

import importlib
import inspect
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch

import flash_attn_rocm
from tests.api.attention_reference import attention_fp64

# (module, names) of flash_attn 2.8 and of the programs that import them, with the module here that has the real ones.
NAMES: list[tuple[str, str, list[str]]] = [
    (
        "flash_attn",
        "flash_attn_rocm.interface",
        [
            "flash_attn_func",
            "flash_attn_kvpacked_func",
            "flash_attn_qkvpacked_func",
            "flash_attn_varlen_func",
            "flash_attn_varlen_kvpacked_func",
            "flash_attn_varlen_qkvpacked_func",
            "flash_attn_with_kvcache",
        ],
    ),
    (
        "flash_attn.flash_attn_interface",
        "flash_attn_rocm.flash_attn_interface",
        [
            "flash_attn_func",
            "flash_attn_kvpacked_func",
            "flash_attn_qkvpacked_func",
            "flash_attn_varlen_func",
            "flash_attn_varlen_kvpacked_func",
            "flash_attn_varlen_qkvpacked_func",
            "flash_attn_with_kvcache",
            "_flash_attn_forward",
            "_flash_attn_backward",
            "_flash_attn_varlen_forward",
            "_flash_attn_varlen_backward",
            "_wrapped_flash_attn_forward",
            "_wrapped_flash_attn_backward",
            "_wrapped_flash_attn_varlen_forward",
            "_wrapped_flash_attn_varlen_backward",
            "FlashAttnFunc",
            "FlashAttnQKVPackedFunc",
            "FlashAttnKVPackedFunc",
            "FlashAttnVarlenFunc",
            "FlashAttnVarlenQKVPackedFunc",
            "FlashAttnVarlenKVPackedFunc",
            "maybe_contiguous",
            "round_multiple",
        ],
    ),
    (
        "flash_attn.bert_padding",
        "flash_attn_rocm.bert_padding",
        [
            "unpad_input",
            "pad_input",
            "unpad_input_for_concatenated_sequences",
            "index_first_axis",
            "index_put_first_axis",
            "index_first_axis_residual",
            "IndexFirstAxis",
            "IndexPutFirstAxis",
            "IndexFirstAxisResidual",
        ],
    ),
    (
        "flash_attn.layers.rotary",
        "flash_attn_rocm.layers.rotary",
        [
            "apply_rotary_emb",
            "apply_rotary_emb_torch",
            "apply_rotary_emb_qkv_",
            "apply_rotary_emb_kv_",
            "apply_rotary_emb_func",
            "RotaryEmbedding",
        ],
    ),
    ("flash_attn.ops.triton.rotary", "flash_attn_rocm.layers.rotary", ["apply_rotary"]),
    ("flash_attn_2_cuda", "flash_attn_rocm.entry_points", ["fwd", "varlen_fwd", "bwd", "varlen_bwd", "fwd_kvcache"]),
]


@pytest.mark.parametrize(("module", "home", "name"), [(m, home, name) for m, home, names in NAMES for name in names])
def test_name_is_that_of_flash_attn_rocm(module: str, home: str, name: str) -> None:
    assert getattr(importlib.import_module(module), name) is getattr(importlib.import_module(home), name)


@pytest.mark.parametrize("module", sorted({module for module, _, _ in NAMES}))
def test_a_star_import_gives_every_public_name(module: str) -> None:
    names = {name for m, _, listed in NAMES if m == module for name in listed}
    assert names <= {*importlib.import_module(module).__all__}


def test_extension_module_has_its_names_in_the_interface() -> None:
    interface = importlib.import_module("flash_attn.flash_attn_interface")
    extension = importlib.import_module("flash_attn_2_cuda")
    assert interface.flash_attn_gpu is interface.flash_attn_cuda is extension


# Facts about flash_attn 2.8, parameter by parameter; a default as Python writes it.
SIGNATURES = {
    "flash_attn.bert_padding": {
        "unpad_input": ["hidden_states", "attention_mask", "unused_mask=None"],
        "pad_input": ["hidden_states", "indices", "batch", "seqlen"],
        "unpad_input_for_concatenated_sequences": ["hidden_states", "attention_mask_in_length"],
    },
    "flash_attn.layers.rotary": {
        "apply_rotary_emb": [
            "x", "cos", "sin", "interleaved=False", "inplace=False", "seqlen_offsets=0", "cu_seqlens=None",
            "max_seqlen=None",
        ],
        "apply_rotary_emb_torch": ["x", "cos", "sin", "interleaved=False"],
        "apply_rotary_emb_qkv_": [
            "qkv", "cos", "sin", "cos_k=None", "sin_k=None", "interleaved=False", "seqlen_offsets=0",
            "num_heads_q=None",
        ],
        "apply_rotary_emb_kv_": ["kv", "cos", "sin", "interleaved=False", "seqlen_offsets=0"],
        "RotaryEmbedding": ["dim", "base=10000.0", "interleaved=False", "scale_base=None", "device=None"],
    },
    "flash_attn.ops.triton.rotary": {
        "apply_rotary": [
            "x", "cos", "sin", "seqlen_offsets=0", "cu_seqlens=None", "max_seqlen=None", "interleaved=False",
            "inplace=False", "conjugate=False",
        ],
    },
}  # fmt: skip


def written(function: Any) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    return [p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters]


@pytest.mark.parametrize(("module", "name"), [(module, name) for module in SIGNATURES for name in SIGNATURES[module]])
def test_signature_of_a_helper(module: str, name: str) -> None:
    assert written(getattr(importlib.import_module(module), name)) == SIGNATURES[module][name]


def test_attention_functions_keep_the_signatures_of_the_table() -> None:
    """tests/api/signatures.toml, through the names that programs import."""
    rows = tomllib.loads(Path(__file__).with_name("signatures.toml").read_text(encoding="utf-8"))["functions"]
    assert len(rows) >= 11
    for row in rows:
        module = row["module"].replace("flash_attn_rocm", "flash_attn", 1)
        assert written(getattr(importlib.import_module(module), row["name"])) == row["parameters"], row["name"]


# What programs write, and whether it works: those with "absent" have an `except ImportError` for it.
STATEMENTS = {
    "transformers": "from flash_attn import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache; "
    "from flash_attn.bert_padding import pad_input, unpad_input; "
    "from flash_attn.layers.rotary import apply_rotary_emb",
    "older transformers": "from flash_attn.bert_padding import index_first_axis, pad_input, unpad_input",
    "diffusers": "from flash_attn import flash_attn_func, flash_attn_varlen_func; "
    "from flash_attn.flash_attn_interface import _flash_attn_backward, _flash_attn_forward",
    "ring attention": "from flash_attn.flash_attn_interface import "
    "_flash_attn_varlen_forward, _flash_attn_varlen_backward",
    "vLLM": "from flash_attn import flash_attn_varlen_func; from flash_attn.ops.triton.rotary import apply_rotary",
    "by module": "import flash_attn.flash_attn_interface as fa; fa.flash_attn_gpu.fwd, fa.flash_attn_func",
    "extension": "import flash_attn_2_cuda as flash_attn_cuda; from flash_attn_2_cuda import varlen_bwd",
    "version": "import flash_attn; from packaging import version; "
    "assert version.parse(flash_attn.__version__) >= version.parse('2.7.0')",
    "Megatron, new name": "from flash_attn.flash_attn_interface import flash_attn_varlen_func as unpadded",
}
ABSENT = {
    "Megatron, name of 1.x": "from flash_attn.flash_attn_interface import flash_attn_unpadded_func",
    "cross entropy": "from flash_attn.losses.cross_entropy import CrossEntropyLoss",
    "triton cross entropy": "from flash_attn.ops.triton.cross_entropy import cross_entropy_loss",
    "layer norm": "from flash_attn.ops.rms_norm import rms_norm",
    "FlashAttention-4": "import flash_attn.cute",
}


@pytest.mark.parametrize("program", STATEMENTS)
def test_import_of_a_program(program: str) -> None:
    exec(STATEMENTS[program], {})


@pytest.mark.parametrize("program", ABSENT)
def test_what_is_absent_says_so_by_name(program: str) -> None:
    with pytest.raises(ImportError, match=r"flash_attn(_unpadded_func|\.losses|\.ops\.\w+|\.cute)"):
        exec(ABSENT[program], {})


def default_arguments(function: Any) -> dict[str, Any]:
    """ring-flash-attention's way to call functions whose later versions have more arguments."""
    spec = inspect.getfullargspec(function)
    defaults = dict(zip(spec.args[len(spec.args) - len(spec.defaults or ()) :], spec.defaults or (), strict=True))
    return {name: defaults.get(name) for name in spec.args}


@pytest.mark.parametrize("causal", [False, True])
def test_ring_attention_of_two_blocks_and_its_gradient(causal: bool) -> None:
    """Keys come in two blocks whose results are merged by their lse; each block's gradient is from the merged ones."""
    interface = importlib.import_module("flash_attn.flash_attn_interface")
    generator = torch.Generator().manual_seed(2)
    q, k, v, dout = (torch.randn(2, 8, heads, 64, generator=generator).half() for heads in (4, 2, 2, 4))
    q_last = q[:, 4:]  # the second rank: it sees the first block whole, its own causally
    blocks = [(k[:, :4], v[:, :4], False), (k[:, 4:], v[:, 4:], causal)]
    shared = {"dropout_p": 0.0, "softmax_scale": 0.1, "alibi_slopes": None, "softcap": 0.0}
    shared |= {"window_size_left": -1, "window_size_right": -1}

    outs, lses = [], []
    for key, value, block_causal in blocks:
        arguments = default_arguments(interface._flash_attn_forward)
        arguments |= shared | {"q": q_last, "k": key, "v": value, "causal": block_causal, "return_softmax": False}
        out, lse, *_ = interface._flash_attn_forward(**arguments)
        outs.append(out.float())
        lses.append(lse)
    lse = torch.logaddexp(*lses)
    weights = [torch.exp(part - lse).transpose(1, 2)[..., None] for part in lses]
    out = sum(weight * part for weight, part in zip(weights, outs, strict=True)).half()

    grads = []
    for key, value, block_causal in blocks:
        arguments = default_arguments(interface._flash_attn_backward)
        dq, dk, dv = torch.empty_like(q_last), torch.empty_like(key), torch.empty_like(value)
        arguments |= shared | {"q": q_last, "k": key, "v": value, "causal": block_causal, "deterministic": False}
        arguments |= {"dout": dout[:, 4:], "out": out, "softmax_lse": lse, "dq": dq, "dk": dk, "dv": dv}
        interface._flash_attn_backward(**arguments)  # without an rng_state
        grads.append((dq.double(), dk.double(), dv.double()))

    exact = [tensor.double().requires_grad_() for tensor in (q_last, k, v)]
    exact_out, exact_lse = attention_fp64(*exact, causal=causal, scale=0.1)
    expected = torch.autograd.grad((exact_out * dout[:, 4:].double()).sum(), exact)
    got = (grads[0][0] + grads[1][0], *(torch.cat([grads[0][i], grads[1][i]], dim=1) for i in (1, 2)))
    assert (out.double() - exact_out).abs().max() <= 2e-3
    assert (lse.double() - exact_lse).abs().max() <= 1e-4
    for one, other in zip(got, expected, strict=True):
        assert (one - other).abs().max() <= 2.0**-8 * other.abs().max()


def test_the_package_of_the_functions_does_not_need_the_drop_in() -> None:
    """flash_attn_rocm never imports flash_attn: it can be installed beside another provider of that name."""
    root = Path(inspect.getfile(flash_attn_rocm)).parent
    found = [
        path
        for path in root.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.strip().startswith(("import flash_attn.", "from flash_attn.", "import flash_attn ", "from flash_attn "))
    ]
    assert found == []
