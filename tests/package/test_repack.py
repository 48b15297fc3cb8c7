"""Repacking what is installed here: names, requirements, bytecode, keys, and a Python that runs anywhere."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import marshal
import os
import py_compile
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

import pytest

from scripts.buildlib.channel import ChannelError, channel_key, make_channel, plan_channel
from scripts.buildlib.conda_calls import install
from scripts.buildlib.repack.archive import Repack, link_or_copy, make_package, staged_files
from scripts.buildlib.repack.distribution import conda_name, convert_bytecode, plan_closure, plan_distribution
from scripts.buildlib.repack.interpreter import plan_interpreter
from scripts.buildlib.repack.toolchain import plan_compiler
from scripts.buildlib.repack.tools import plan_cxx, plan_tool
from scripts.buildlib.toolchains.layout import Parts, Toolchain, inspect_parts
from tests.api.fake_runtime import c_compiler
from tests.unit.fake_toolchain import make_clang, make_rocm, write_script


def _repack(text: str, name: str = "thing") -> Repack:
    def stage(staging: Path) -> Iterable[tuple[Path, str]]:
        (staging / "share").mkdir()
        (staging / "share" / name).write_text(text, encoding="utf-8")
        return staged_files(staging)

    return Repack(name, "1.0", text, (), stage)


def test_conda_names_differ_from_the_package_index_where_conda_forge_says_so() -> None:
    assert [conda_name(name) for name in ("torch", "msgpack", "Jinja2")] == ["pytorch", "msgpack-python", "jinja2"]


def test_requirements_become_conda_specs() -> None:
    plan = plan_distribution(importlib.metadata.distribution("sympy"))
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert plan.depends == ("mpmath <1.4,>=1.1.0", f"python {python}.*")  # sympy 1.14: mpmath >=1.1.0,<1.4


def test_closure_holds_what_is_required_in_turn() -> None:
    names = {plan.name for plan in plan_closure(["pytorch"])}
    assert {"pytorch", "sympy", "mpmath", "jinja2", "markupsafe", "typing_extensions"} <= names


def test_a_package_that_is_not_installed_is_named(toolchain: Toolchain) -> None:
    with pytest.raises(ChannelError, match=r"the recipe needs no-such-thing.*--channel"):
        plan_channel(["no-such-thing"], toolchain)


@pytest.fixture
def toolchain() -> Toolchain:
    """Never run: only its fields are read."""
    here = Path(sys.executable)
    text = dict.fromkeys(("clang_version", "clang_target", "lld_version", "hip_version", "bitcode_version"), "22.1.8")
    return Toolchain("test", here, here, here, None, here.parent, here.parent, here.parent, **text)


def test_a_toolchain_without_objdump_is_an_error_that_says_what_to_install(toolchain: Toolchain) -> None:
    with pytest.raises(ChannelError, match=r"no llvm-objdump; install llvm-22"):
        plan_channel(["llvm-tools"], toolchain)


def test_without_gxx_the_clang_of_the_kernels_compiles_the_host_library(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clangxx = tmp_path / "clang++"
    clangxx.write_text("#!/bin/sh\necho clang version 22.1.8\n", encoding="utf-8")
    clangxx.chmod(0o755)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    plan = plan_cxx(clangxx)
    ((script, path),) = plan.stage(tmp_path / "staging")
    assert (plan.name, plan.version, path) == ("gxx_linux-64", "22.1.8", "etc/conda/activate.d/gxx_linux-64.sh")
    assert script.read_text(encoding="utf-8") == f"export CXX={clangxx}\n"


def test_programs_in_places_with_spaces_and_quotes_can_be_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = write_script(tmp_path / "it's a $place" / "tool", '#!/bin/sh\necho "tool 1.2" "$@"\n')
    monkeypatch.setenv("PATH", f"{program.parent}:/bin")
    monkeypatch.setenv("CXX", "tool")
    ((wrapper, _),) = plan_tool("tool").stage(tmp_path / "wrapper")
    assert subprocess.run([wrapper, "a b"], capture_output=True, text=True, check=True).stdout == "tool 1.2 a b\n"
    ((script, _),) = plan_cxx(program).stage(tmp_path / "cxx")
    command = f'. "{script}"; exec "$CXX" c'
    assert subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout == "tool 1.2 c\n"


def test_interrupted_copy_leaves_nothing_in_a_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def half(source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes()[:3])
        raise KeyboardInterrupt

    def refuse(*_: Path) -> None:
        raise OSError("another file system")

    source, target = tmp_path / "source", tmp_path / "store" / "package.conda"
    source.write_bytes(b"package")
    monkeypatch.setattr(os, "link", refuse)
    with monkeypatch.context() as interrupted, pytest.raises(KeyboardInterrupt):
        interrupted.setattr(shutil, "copy2", half)
        link_or_copy(source, target)
    assert list(target.parent.iterdir()) == []
    link_or_copy(source, target)
    assert target.read_bytes() == b"package"


def test_every_file_of_the_compiler_package_is_in_its_key(tmp_path: Path) -> None:
    clang, rocm = make_clang(tmp_path / "bin"), make_rocm(tmp_path / "rocm")
    write_script(clang.parent / "llvm-objdump", "#!/bin/sh\n")
    for path in (
        tmp_path / "lib/clang/22/include/x.h",
        rocm / "include/hip/amd_detail/y.hpp",
        rocm / "share/hip/version",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1")
    found = inspect_parts("test", "here", Parts([clang], [rocm], [rocm / "amdgcn" / "bitcode"]), ()).toolchain
    assert found is not None
    packed = {path for path, _ in plan_compiler(found).stage(tmp_path / "staging") if not path.is_symlink()}
    keys = {plan_compiler(found).key}
    originals = [clang, clang.parent / "ld.lld", clang.parent / "llvm-objdump"]
    originals += [path for base in (rocm, tmp_path / "lib") for path in base.rglob("*") if path.is_file()]
    assert len(packed) == len(originals)
    for path in originals:
        path.write_bytes(path.read_bytes() + b"#")
        keys.add(plan_compiler(found).key)
    assert len(keys) == 1 + len(originals)


def test_cxx_that_is_no_program_is_an_error(monkeypatch: pytest.MonkeyPatch, toolchain: Toolchain) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ChannelError, match="CXX is 'no-such-compiler'"):
        plan_channel(["gxx_linux-64"], toolchain)


def test_key_follows_content() -> None:
    assert _repack("a").key == _repack("a").key
    assert _repack("a").key != _repack("b").key
    assert channel_key([_repack("a"), _repack("b", "other")]) == channel_key([_repack("b", "other"), _repack("a")])


def test_package_is_made_once(tmp_path: Path) -> None:
    first = make_package(_repack("a"), tmp_path)
    stamp = first.stat().st_mtime_ns
    assert make_package(_repack("a"), tmp_path) == first
    assert first.stat().st_mtime_ns == stamp


def test_interrupted_channel_leaves_nothing(tmp_path: Path) -> None:
    def stop(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_channel([_repack("a")], tmp_path, stop)
    assert list((tmp_path).glob("channels/*")) == []


def test_bytecode_stays_valid_after_the_source_changes_its_time(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text("VALUE = 41 + 1\n", encoding="utf-8")
    py_compile.compile(str(source))
    target = tmp_path / "out" / "module.pyc"
    assert convert_bytecode(source, target)
    data = target.read_bytes()
    assert data[:4] == importlib.util.MAGIC_NUMBER
    assert int.from_bytes(data[4:8], "little") == 0b01  # PEP 552: hash-based, check_source off
    assert data[8:16] == importlib.util.source_hash(source.read_bytes())
    namespace: dict[str, object] = {}
    exec(marshal.loads(data[16:]), namespace)
    assert namespace["VALUE"] == 42


def test_source_without_bytecode_is_left_as_it_is(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text("VALUE = 1\n", encoding="utf-8")
    assert not convert_bytecode(source, tmp_path / "module.pyc")


def test_repacked_python_runs_without_any_environment(tmp_path: Path) -> None:
    channel = make_channel([plan_interpreter()], tmp_path / "root", lambda _: None)
    prefix = tmp_path / "prefix"
    install([f"file://{channel}"], ["python"], prefix, tmp_path / "cache")
    shutil.move(prefix, tmp_path / "moved")
    code = "import ssl, sqlite3, lzma, bz2, ctypes, sysconfig"
    code += "; print(sysconfig.get_path('purelib')); print(sysconfig.get_path('include'))"
    done = subprocess.run(
        [tmp_path / "moved" / "bin" / "python", "-c", code], env={}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    include = tmp_path / "moved" / "include" / python
    assert done.stdout.split() == [str(tmp_path / "moved" / "lib" / python / "site-packages"), str(include)]
    # torch.compile's CPU code includes them; a Debian without python3-dev has none.
    headers = Path(sysconfig.get_path("include"))
    assert (include / "Python.h").exists() == (headers / "Python.h").exists()
    if (include / "Python.h").exists():
        program = tmp_path / "program.c"
        program.write_text("#include <Python.h>\n", encoding="utf-8")
        subprocess.run([c_compiler(), "-fsyntax-only", f"-I{include}", str(program)], check=True)
