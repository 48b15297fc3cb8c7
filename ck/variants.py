"""Read ck/variants.toml: the rows from which ck/plan.py makes kernels."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ck.errors import RequestError, TableError, check_keys
from flash_attn_rocm.archs import load_archs

VARIANTS_TOML = Path(__file__).parent / "variants.toml"

DTYPES = ("fp16", "bf16")
PADDINGS = ("none", "seqlen", "full")
_ALLOWED: dict[str, tuple[object, ...]] = {
    "dtypes": DTYPES,
    "modes": ("batch", "group"),
    "masks": (False, True),
    "biases": ("none", "alibi"),
    "softcaps": (False, True),
    "dropouts": (False, True),
    "paddings": PADDINGS,
    "pages": (0, 16, 64),
    "determinisms": (False, True),
}
# CK's kernels, which have tiles, and our own small ones around them, which take any head dim.
TILED_OPS = ("fmha_fwd", "fmha_fwd_splitkv", "fmha_bwd")
PLAIN_OPS = ("split_combine", "kv_prepare", "bwd_dot", "bwd_sum_keys", "bwd_sum_heads")
OPS = TILED_OPS + PLAIN_OPS
# Their records hold further argument names (csrc/device/bwd_args.def).
BACKWARD_OPS = ("fmha_bwd", "bwd_dot", "bwd_sum_keys", "bwd_sum_heads")
MAX_HDIM = 256
_ROW_KEYS: dict[str, type | tuple[type, ...]] = {
    "op": str,
    "profiles": list,
    "gpus": list,
    "hdims": list,
    "why": str,
    **dict.fromkeys(_ALLOWED, list),
}
# What a row need not say: a plain op has none of these, and most kernels know nothing of pages.
_DEFAULTS: dict[str, list[object]] = {
    "modes": ["batch"],
    "masks": [False],
    "biases": ["none"],
    "softcaps": [False],
    "dropouts": [False],
    "paddings": ["full"],
    "pages": [0],
    "determinisms": [False],
}
_OPTIONAL = ("pages", "determinisms")


@dataclass(frozen=True, order=True)
class Variant:
    """One kernel as the tables describe it, before a GPU and a tile are chosen for it."""

    op: str
    hdim: int
    dtype: str
    mode: str
    mask: bool
    bias: str
    softcap: bool
    dropout: bool
    padding: str
    page: int = 0  # keys and values in pages of a multiple of this many rows; 0: not in pages
    deterministic: bool = False  # backward: dQ in parts that are added in order, not by atomics


@dataclass(frozen=True)
class VariantTable:
    """The profiles and, per profile, its variants in a fixed order without repetition."""

    profiles: dict[str, str]
    variants: dict[str, dict[Variant, frozenset[str]]]  # with the GPUs that rows name, empty: all

    def of_profile(self, profile: str, gfx: str | None = None) -> tuple[Variant, ...]:
        """The variants of one profile: for one GPU, or for any.

        Raises:
            RequestError: no such profile.
        """
        if profile not in self.profiles:
            raise RequestError("profile", profile, self.profiles)
        found = self.variants[profile].items()
        return tuple(sorted(variant for variant, gpus in found if gfx is None or not gpus or gfx in gpus))


def _expand(row: dict[str, Any]) -> Iterator[Variant]:
    for hdim, dtype, mode, mask, bias, softcap, dropout, padding, page, deterministic in itertools.product(
        row["hdims"],
        row["dtypes"],
        row["modes"],
        row["masks"],
        row["biases"],
        row["softcaps"],
        row["dropouts"],
        row["paddings"],
        row["pages"],
        row["determinisms"],
    ):
        yield Variant(row["op"], hdim, dtype, mode, mask, bias, softcap, dropout, padding, page, deterministic)


def _check_row(row: Any, index: int, profiles: dict[str, str], path: Path) -> dict[str, Any]:
    where = f"[[kernels]] row {index}"
    given: dict[str, Any] = check_keys(row, _ROW_KEYS, path, where, optional=("gpus", "hdims", *_DEFAULTS))
    if given["op"] not in OPS:
        raise TableError(path, f"{where}: op is {given['op']!r}; allowed: {list(OPS)}")
    plain = given["op"] in PLAIN_OPS
    needed = () if plain else tuple(key for key in ("hdims", *_DEFAULTS) if key not in _OPTIONAL)
    if missing := [key for key in needed if key not in given]:
        raise TableError(path, f"missing keys {missing} in {where}")
    if plain and (extra := sorted(set(given) & {"hdims", *_DEFAULTS})):
        raise TableError(path, f"{where}: a {given['op']} kernel is not made in variants, so it has no {extra}")
    checked: dict[str, Any] = {"hdims": [MAX_HDIM], **_DEFAULTS, **given}
    choices: dict[str, tuple[object, ...]] = {**_ALLOWED, "profiles": tuple(profiles)}
    for key, allowed in choices.items():
        # bool is an int in Python, so compare types too: 1 is not a legal mask.
        bad = [value for value in checked[key] if not any(type(value) is type(a) and value == a for a in allowed)]
        if bad or not checked[key]:
            raise TableError(path, f"{where}: {key} has {bad or 'no values'}; allowed: {list(allowed)}")
    if unknown := [gfx for gfx in checked.get("gpus", ()) if gfx not in load_archs()]:
        raise TableError(path, f"{where}: gpus has {unknown}; allowed: {list(load_archs())}")
    bad_dims = [dim for dim in checked["hdims"] if type(dim) is not int or dim <= 0]
    if bad_dims or not checked["hdims"]:
        raise TableError(path, f"{where}: hdims has {bad_dims or 'no values'}; expected positive integers")
    return checked


def load_variants(path: Path = VARIANTS_TOML) -> VariantTable:
    """Read and check the table of kernel variants.

    Raises:
        TableError: a key or value is not one the schema at the top of variants.toml allows.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise TableError(path, f"not valid TOML: {error}") from error
    top: dict[str, Any] = check_keys(document, {"schema": int, "profiles": dict, "kernels": list}, path, "top level")
    if top["schema"] != 1:
        raise TableError(path, f"schema is {top['schema']}; this reader knows schema 1")
    profiles: dict[str, str] = top["profiles"]
    found: dict[str, dict[Variant, frozenset[str]]] = {name: {} for name in profiles}
    for index, row in enumerate(top["kernels"], start=1):
        checked = _check_row(row, index, profiles, path)
        for name, variant in itertools.product(checked["profiles"], _expand(checked)):
            before = found[name].get(variant)
            mine = frozenset(checked.get("gpus", ()))
            # All GPUs (none named) includes the named ones of another row.
            found[name][variant] = mine if before is None else (before | mine if before and mine else frozenset())
    return VariantTable(profiles, found)
