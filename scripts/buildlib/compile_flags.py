"""The flags kernels are compiled with, split into those that name no path of this machine and those that do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from flash_attn_rocm.archs import Arch

if TYPE_CHECKING:  # toolchains.layout compiles a test kernel with these flags
    from scripts.buildlib.toolchains.layout import Toolchain


def device_flags(arch: Arch) -> list[str]:
    """Flags that decide the machine code; the same on every machine, so they are part of the cache key.

    None of upstream's -mllvm flags: `-amdgpu-early-inline-all` makes LLVM 22 run for half an hour on one kernel, and
    the others changed nothing that was measured.
    """
    return [
        "-x", "hip", f"--offload-arch={arch.gfx}", "--cuda-device-only", "--no-gpu-bundle-output",
        "-std=c++20", "-O3",
        "-D__HIP_PLATFORM_AMD__=1",
        # clang 22 no longer defines it, HIP 6.4's headers still need it.
        f"-D__AMDGCN_WAVEFRONT_SIZE={arch.wave_size}",
        "-DCK_TILE_FMHA_FWD_FAST_EXP2=1",
        f"-DCK_TILE_FLOAT_TO_BFLOAT16_DEFAULT={arch.bf16_rounding}",
        *(["-DCK_TILE_USE_WMMA=1"] if arch.matrix == "wmma" else []),
        # Where that pipeline runs it, an assert of CK would make the kernel call the host.
        *(["-DNDEBUG"] if arch.transposed_loads else []),
        "-fuse-cuid=none",  # no random symbol: rebuilds are bit-identical
        "-mcode-object-version=5",  # the newest that every ROCm 6 and 7 runtime loads
        "-w",  # CK is not warning-free
    ]  # fmt: skip


def path_flags(toolchain: Toolchain, include_dirs: Mapping[str, Path], source_dir: Path) -> list[str]:
    """Flags that say where things are on this machine. Paths are kept out of the code objects by the prefix maps."""
    roots = {**include_dirs, "source": source_dir, "hip": toolchain.hip_include, "clang": toolchain.resource_dir}
    return [
        f"--rocm-path={toolchain.rocm_path}",
        f"--rocm-device-lib-path={toolchain.device_lib_path}",
        *(f"-I{path}" for path in include_dirs.values()),
        *(f"-ffile-prefix-map={path}={name}" for name, path in roots.items()),
    ]
