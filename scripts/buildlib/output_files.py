"""What a package's build script runs: compile one output's files and put them into its prefix."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from scripts.buildlib.commands import find_program, run_command

FILE_STAGES = ("kernels", "host", "emulator", "compat")
ROOT = Path(__file__).resolve().parent.parent.parent
_IN_RECIPE = "the build environment should hold it (recipe/recipe.yaml)"


def _kernels(prefix: Path, arch: str | None, profile: str) -> None:
    # Each stage imports only what its own output's build environment holds.
    from scripts.buildlib.kernels import KernelRequest, build_kernels
    from scripts.buildlib.request import choose_archs, choose_hdims, choose_max_jobs

    # rattler-build keeps pip from the network. `./pixiw run build` passes a cache that holds Composable Kernel already;
    # who runs rattler-build directly has none, and a `source:` of the recipe would have to name a registry's address.
    # pip fetches it from the index that it is configured for and checks the pinned hash.
    for name in ("PIP_NO_INDEX", "PIP_NO_DEPENDENCIES"):
        os.environ.pop(name, None)
    out = ROOT / "build" / "kernels"
    archs = choose_archs(arch)
    built = build_kernels(KernelRequest(profile, archs, out, choose_hdims(None), choose_max_jobs(None)))
    print(built.summary())
    for gfx, manifest in built.manifests.items():
        target = prefix / "share" / "flash_attn_rocm" / gfx
        target.mkdir(parents=True, exist_ok=True)
        for file in (manifest, *sorted(manifest.parent.glob("*.co"))):
            shutil.copyfile(file, target / file.name)


def _is_windows_from_linux() -> bool:
    return os.environ.get("FA_PLATFORM") == "win-64" and sys.platform != "win32"


def _host(prefix: Path) -> None:
    if _is_windows_from_linux():
        _host_for_windows(prefix)
        return
    from scripts.buildlib.host import TORCH_LIBRARY, build_host

    windows = sys.platform == "win32"
    native = prefix / "Library" if windows else prefix  # where conda packages put what is no Python
    site_packages = Path(os.environ["SP_DIR"])
    # conda-forge's libtorch puts the libraries into lib, the wheels keep them inside the package.
    torch_libs = [site_packages / "torch" / "lib", native / "lib"]
    torch_include = site_packages / "torch" / "include"
    package = ROOT / "src" / "flash_attn_rocm"
    build_host(
        cxx=find_program(os.environ.get("CXX", "cl" if windows else "c++"), _IN_RECIPE),
        torch_include=[torch_include, torch_include / "torch" / "csrc" / "api" / "include"],
        torch_lib=next((path for path in torch_libs if (path / TORCH_LIBRARY).exists()), torch_libs[0]),
        nlohmann_include=native / "include",
        build_dir=ROOT / "build" / "host",
        install_dir=package / "lib",
    )
    _install_python_package(ROOT, "flash_attn_rocm")


def _host_for_windows(prefix: Path) -> None:
    from scripts.buildlib.cache_root import cache_root
    from scripts.buildlib.windows.host_library import build_host_library
    from scripts.buildlib.windows.mingw import find_mingw

    package = ROOT / "src" / "flash_attn_rocm"
    build_host_library(find_mingw(may_install=False), cache_root(), ROOT / "build" / "host", package / "lib")
    # Pure Python but for the DLL: any Python can install it into the place that Windows' has.
    place = prefix / "Lib" / "site-packages"
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-build-isolation", "--no-compile", "--no-index"]
    run_command("installing the Python package flash_attn_rocm", [*pip, "--target", place, ROOT])
    shutil.rmtree(place / "bin", ignore_errors=True)  # entry points are the recipe's to say
    _forget_directory(place, "flash_attn_rocm")


def _install_python_package(source: Path, name: str) -> None:
    # --no-deps: what a package requires is the recipe's to say.
    pip = [os.environ["PYTHON"], "-m", "pip", "install", "--no-deps", "--no-build-isolation", "--no-compile"]
    run_command(f"installing the Python package {name}", [*pip, source])
    _forget_directory(Path(os.environ["SP_DIR"]), name)


def _forget_directory(site_packages: Path, name: str) -> None:
    for leftover in site_packages.glob(f"{name}-*.dist-info/direct_url.json"):
        leftover.unlink()  # names the directory it was installed from


def _emulator(prefix: Path) -> None:
    from ck.golden import find_golden
    from scripts.buildlib.cache_root import cache_root
    from scripts.buildlib.emulator import build_emulator
    from scripts.buildlib.kept_kernels import find_kept

    kept = find_kept(cache_root())
    golden = find_golden(cache_root())  # `./pixiw run build` has fetched them; without them all other kernels run
    build_emulator(
        clangxx=find_program("clang++", _IN_RECIPE),
        llvm_objdump=find_program("llvm-objdump", _IN_RECIPE),
        kernel_dirs=[
            *sorted((prefix / "share" / "flash_attn_rocm").glob("*/")),
            *([kept] if kept is not None else []),
        ],
        golden_dirs=[golden] if golden else [],
        build_dir=ROOT / "build" / "emulator",
        install_dir=prefix / "lib" / "flash_attn_rocm" / "emulator",
    )


def _compat(prefix: Path) -> None:
    del prefix  # pip knows where the packages of its Python go
    _install_python_package(ROOT / "compat", "flash_attn")


def build_files(stage: str, prefix: Path, arch: str | None, profile: str) -> None:
    """Build the files of the output whose build script names this stage.

    Raises:
        BuildError: they do not build.
    """
    if stage == "kernels":
        _kernels(prefix, arch, profile)
    else:
        {"host": _host, "emulator": _emulator, "compat": _compat}[stage](prefix)
