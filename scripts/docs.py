"""Regenerate the tables of README.md from the GPU and kernel tables; `--check` only compares and fails on a difference.

A generated part stands between `<!-- begin NAME -->` and `<!-- end NAME -->`; everything else is written by hand.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from ck.plan import plan_units  # noqa: E402
from ck.variants import Variant  # noqa: E402
from flash_attn_rocm.archs import load_archs  # noqa: E402

README = ROOT / "README.md"
PROFILE = "full"

# Column -> what a GPU's forward kernels offer of it.
FEATURES: dict[str, Callable[[tuple[Variant, ...]], str]] = {
    "dtypes": lambda kernels: ", ".join(sorted({kernel.dtype for kernel in kernels})),
    "head dims": lambda kernels: f"1-{max(kernel.hdim for kernel in kernels)}",
    "causal, window": lambda kernels: _yes(any(kernel.mask for kernel in kernels)),
    "varlen": lambda kernels: _yes(any(kernel.op == "fmha_fwd" and kernel.mode == "group" for kernel in kernels)),
    "KV cache": lambda kernels: _yes(any(kernel.op == "fmha_fwd_splitkv" for kernel in kernels)),
    "pages of": lambda kernels: f"{min(kernel.page for kernel in kernels if kernel.page)}, 32, 48... rows",
    "ALiBi": lambda kernels: _yes(any(kernel.bias == "alibi" for kernel in kernels)),
    "softcap": lambda kernels: _yes(any(kernel.softcap for kernel in kernels)),
    "dropout": lambda kernels: _yes(any(kernel.dropout for kernel in kernels)),
}


def _yes(present: bool) -> str:
    return "yes" if present else "no"


def support_table() -> str:
    """GPU x feature, from each GPU's policy and plan of PROFILE: what has a CK kernel, what runs on torch's SDPA."""
    lines = [
        f"| GPU | products | forward | {' | '.join(FEATURES)} | backward |",
        f"|{'---|' * (len(FEATURES) + 4)}",
    ]
    for arch in load_archs().values():
        kernels = [spec.variant for unit in plan_units(arch, PROFILE) for spec in unit.specs]
        forward = tuple(kernel for kernel in kernels if kernel.op in ("fmha_fwd", "fmha_fwd_splitkv"))
        largest = max((kernel.hdim for kernel in kernels if kernel.op == "fmha_bwd"), default=0)
        # Where the policy is torch's attention, everything runs on it.
        offers = FEATURES.values()
        cells = [offer(forward) if arch.forward_backend == "ck" else "SDPA" for offer in offers]
        backward = f"CK up to d{largest}" if arch.backward_backend == "ck" and largest else "SDPA"
        row = [arch.gfx, ", ".join(arch.products), arch.forward_backend.upper(), *cells, backward]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


PARTS: dict[str, Callable[[], str]] = {"support": support_table}


def regenerate(text: str) -> str:
    """The README's text with every generated part made anew.

    Raises:
        ValueError: a marker is missing.
    """
    for name, make in PARTS.items():
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        if not re.search(f"{re.escape(begin)}.*{re.escape(end)}", text, re.S):
            raise ValueError(f"README.md has no part between {begin.strip()} and {end}")
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}{make()}\n{end}{rest.partition(end)[2]}"
    return text


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="pixiw run docs", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when a table is not current")
    options = parser.parse_args(arguments)
    current = README.read_text(encoding="utf-8")
    fresh = regenerate(current)
    if fresh == current:
        print("the tables of README.md are current")
        return 0
    if options.check:
        print("the tables of README.md are not current; run ./pixiw run docs", file=sys.stderr)
        return 1
    README.write_text(fresh, encoding="utf-8")
    print("README.md written")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
