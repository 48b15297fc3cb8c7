"""Read ck/variants.toml: the rows from which ck/plan.py makes kernels."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ck.errors import RequestError, TableError, check_keys

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
}
OPS = ("fmha_fwd",)
_ROW_KEYS: dict[str, type | tuple[type, ...]] = {
    "op": str,
    "profiles": list,
    "hdims": list,
    "why": str,
    **dict.fromkeys(_ALLOWED, list),
}


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


@dataclass(frozen=True)
class VariantTable:
    """The profiles and, per profile, its variants in a fixed order without repetition."""

    profiles: dict[str, str]
    variants: dict[str, tuple[Variant, ...]]

    def of_profile(self, profile: str) -> tuple[Variant, ...]:
        """The variants of one profile.

        Raises:
            RequestError: no such profile.
        """
        if profile not in self.profiles:
            raise RequestError("profile", profile, self.profiles)
        return self.variants[profile]


def _expand(row: dict[str, Any]) -> Iterator[Variant]:
    for hdim, dtype, mode, mask, bias, softcap, dropout, padding in itertools.product(
        row["hdims"],
        row["dtypes"],
        row["modes"],
        row["masks"],
        row["biases"],
        row["softcaps"],
        row["dropouts"],
        row["paddings"],
    ):
        yield Variant(row["op"], hdim, dtype, mode, mask, bias, softcap, dropout, padding)


def _check_row(row: Any, index: int, profiles: dict[str, str], path: Path) -> dict[str, Any]:
    where = f"[[kernels]] row {index}"
    checked: dict[str, Any] = check_keys(row, _ROW_KEYS, path, where)
    if checked["op"] not in OPS:
        raise TableError(path, f"{where}: op is {checked['op']!r}; allowed: {list(OPS)}")
    choices: dict[str, tuple[object, ...]] = {**_ALLOWED, "profiles": tuple(profiles)}
    for key, allowed in choices.items():
        # bool is an int in Python, so compare types too: 1 is not a legal mask.
        bad = [
            value
            for value in checked[key]
            if not any(value is a or (type(value) is str and value == a) for a in allowed)
        ]
        if bad or not checked[key]:
            raise TableError(path, f"{where}: {key} has {bad or 'no values'}; allowed: {list(allowed)}")
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
    found: dict[str, set[Variant]] = {name: set() for name in profiles}
    for index, row in enumerate(top["kernels"], start=1):
        checked = _check_row(row, index, profiles, path)
        for name in checked["profiles"]:
            found[name].update(_expand(checked))
    return VariantTable(profiles, {name: tuple(sorted(variants)) for name, variants in found.items()})
