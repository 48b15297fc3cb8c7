"""Building the host library: what is missing is named before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.buildlib import host
from scripts.buildlib.errors import BuildError


def layout(root: Path) -> dict[str, Path]:
    """Files that must exist, by the words an error uses for them."""
    return {
        "C++ compiler": root / "g++",
        "torch library": root / "torch" / "libtorch_cpu.so",
        "nlohmann-json header": root / "include" / "nlohmann" / "json.hpp",
    }


def build(root: Path) -> Path:
    return host.build_host(
        cxx=root / "g++",
        torch_include=[root / "a", root / "b"],
        torch_lib=root / "torch",
        nlohmann_include=root / "include",
        build_dir=root / "build",
        install_dir=root / "install",
    )


@pytest.mark.parametrize("missing", ["C++ compiler", "torch library", "nlohmann-json header"])
def test_a_missing_file_is_named(tmp_path: Path, missing: str) -> None:
    for what, path in layout(tmp_path).items():
        if what != missing:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    with pytest.raises(BuildError, match=f"{missing.replace('+', '.')} .* does not exist"):
        build(tmp_path)


def test_cmake_gets_the_compiler_and_every_include_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in layout(tmp_path).values():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    commands: list[list[str]] = []
    monkeypatch.setattr(host, "run_command", lambda what, command: commands.append([str(word) for word in command]))
    assert build(tmp_path) == tmp_path / "install" / "libflash_attn_rocm.so"
    configure, compile_, install = commands
    assert f"-DCMAKE_CXX_COMPILER={tmp_path / 'g++'}" in configure
    assert f"-DTORCH_INCLUDE_DIRS={tmp_path / 'a'};{tmp_path / 'b'}" in configure
    assert [Path(compile_[0]).stem, compile_[1]] == ["cmake", "--build"]
    assert [Path(install[0]).stem, install[1]] == ["cmake", "--install"]
