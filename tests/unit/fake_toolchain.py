"""A make-believe toolchain: shell and Python scripts that answer as clang and lld do, and files where ROCm has them."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

_CLANG = """#!/bin/sh
case "$1" in
--version) echo "{version}"; echo "Target: x86_64-pc-linux-gnu"; echo "InstalledDir: $(dirname "$0")";;
--print-targets) echo "  {target} - a target";;
-print-prog-name=ld.lld) echo "{lld}";;
-print-prog-name=llvm-objdump) echo "$(dirname "$0")/llvm-objdump";;
-print-resource-dir) echo "$(dirname "$0")/../lib/clang/22";;
*) {compile};;
esac
"""


def write_script(path: Path, text: str) -> Path:
    """An executable script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def make_clang(
    directory: Path,
    name: str = "clang++",
    version: str = "clang version 22.1.8",
    target: str = "amdgcn",
    lld: bool = True,
    compile_with: str = "exit 0",
) -> Path:
    """A clang++ in `directory`; `compile_with` is what it does when asked to compile."""
    program = write_script(directory / "ld.lld", '#!/bin/sh\necho "LLD 22.1.8"\n')
    text = _CLANG.format(version=version, target=target, lld=program if lld else "ld.lld", compile=compile_with)
    return write_script(directory / name, text)


def make_rocm(root: Path, hip: tuple[int, int] = (6, 4), gfxs: tuple[str, ...] = ("gfx1201",)) -> Path:
    """HIP headers and device libraries below `root`."""
    header = root / "include" / "hip" / "hip_version.h"
    header.parent.mkdir(parents=True, exist_ok=True)
    header.write_text(
        f"#define HIP_VERSION_MAJOR {hip[0]}\n#define HIP_VERSION_MINOR {hip[1]}\n#define HIP_VERSION_PATCH 43484\n"
    )
    bitcode = root / "amdgcn" / "bitcode"
    bitcode.mkdir(parents=True, exist_ok=True)
    for name in ("ockl", *(f"oclc_isa_version_{gfx.removeprefix('gfx')}" for gfx in gfxs)):
        (bitcode / f"{name}.bc").write_bytes(b"BC\xc0\xde")
    return root


# Compiles like clang as far as a build can see: reads the kernels' names from the source, writes a code object that
# holds them and the dependency file, and counts its runs; a source or header with the word BROKEN is an error, a header
# with the word TOUCH is written again during the compile, one with LEAK puts the source's path into the code object.
# With a file `stall` beside the log, every compile but the first never ends. -E only writes the dependency file.
_COMPILER = """
import re, sys, time
from pathlib import Path
sys.path[:0] = [{root!r}]
from ck.code_object import read_arg_names
from tests.unit.fake_code_object import FakeKernel, make_code_object
words = sys.argv[1:]
source = Path(next(word for word in words if word.endswith(".hip")))
folders = [Path(word[2:]) for word in words if word.startswith("-I")]
header = next(path for folder in folders if (path := folder / "ck_tile/core.hpp").exists())
if "-E" not in words:
    Path({log!r}).open("a").write(source.name + "\\n")
    if Path({log!r}).with_name("stall").exists() and len(Path({log!r}).read_text().splitlines()) > 1:
        time.sleep(600)
for path in (source, header):
    if "BROKEN" in path.read_text():
        sys.exit(f"In file included from {{source}}:1:\\n{{path}}:1:1: error: BROKEN is not a type\\n  note: first"
                 f"\\n{{path}}:2:1: error: a second error\\n2 errors generated.")
if "TOUCH" in header.read_text():
    header.touch()
if "-dependency-file" in words:
    Path(words[words.index("-dependency-file") + 2]).write_text(f"out: {{source}} \\\\\\n  {{header}}\\n")
if "-E" in words:
    sys.exit(0)
shape = r"using (Shape\\w+) = ck_tile::TileFmhaShape<ck_tile::sequence<([\\d, ]+)>"
shapes = dict(re.findall(shape, source.read_text()))
kernels = []
pairs = re.findall(r"_t, (Shape\\w+),.*?FA_TILED_KERNEL\\((\\w+),", source.read_text(), flags=re.DOTALL)
for shape, name in pairs:
    m0, n0, _, n1, _, hdim = (int(number) for number in shapes[shape].split(","))
    kernels.append(FakeKernel(name, tile=(m0, n0, hdim, n1)))
leak = str(source).encode() if "LEAK" in header.read_text() else b""
Path(words[words.index("-o") + 1]).write_bytes(make_code_object(kernels, read_arg_names()) + leak)
"""


def make_compiler(directory: Path, log: Path) -> Path:
    """A clang++ that makes code objects without compiling; `log` gets a line per compile."""
    script = directory / "compile.py"
    directory.mkdir(parents=True, exist_ok=True)
    script.write_text(_COMPILER.format(root=str(ROOT), log=str(log)))
    return make_clang(directory, compile_with=f'exec "{sys.executable}" "{script}" "$@"')
