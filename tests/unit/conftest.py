"""The kernel build with a make-believe compiler, for the tests of what happens around compiles."""

from __future__ import annotations

import io
import itertools
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

from ck.source import CkSource
from ck.variants import DTYPES, PADDINGS, Variant, VariantTable
from flash_attn_rocm.archs import load_arch
from scripts.buildlib.kernels import KernelBuild, KernelRequest, build_kernels
from scripts.buildlib.toolchains.layout import Parts, Toolchain, inspect_parts
from tests.unit.fake_toolchain import make_compiler, make_rocm

# 24 forward kernels in 4 code objects.
PROFILE = "tiny"
_ROWS = itertools.product((64, 128), DTYPES, (False, True), PADDINGS)
TABLE = VariantTable(
    {PROFILE: "a test"},
    {
        PROFILE: {
            Variant("fmha_fwd", hdim, dtype, "batch", mask, "none", False, False, padding): frozenset()
            for hdim, dtype, mask, padding in _ROWS
        }
    },
)


@dataclass
class Workshop:
    """A toolchain, a CK tree, and the log of compiles; what it builds is TABLE's profile."""

    root: Path
    toolchain: Toolchain
    ck: CkSource
    log: Path

    def build(self, out: str = "out", **wanted: object) -> KernelBuild:
        request = KernelRequest(PROFILE, (load_arch("gfx1201"),), self.root / out, **wanted)
        return build_kernels(request, Console(file=io.StringIO()), self.toolchain, self.ck)

    def compiles(self) -> int:
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    monkeypatch.setenv("FLASH_ATTN_ROCM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("ck.plan.load_variants", lambda: TABLE)
    log = tmp_path / "compiles.log"
    clang = make_compiler(tmp_path / "bin", log)
    rocm = make_rocm(tmp_path / "rocm")
    candidate = inspect_parts("test", "here", Parts([clang], [rocm], [rocm / "amdgcn" / "bitcode"]), ())
    assert candidate.toolchain is not None, candidate.reason
    core = tmp_path / "ck" / "include" / "ck_tile" / "core.hpp"
    core.parent.mkdir(parents=True)
    core.write_text("// core\n")
    return Workshop(tmp_path, candidate.toolchain, CkSource(tmp_path / "ck", "tiny-ck 1.0", "a test"), log)
