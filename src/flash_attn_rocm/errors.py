"""Every exception this package raises: what failed, the value, what is allowed and what to do next."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path


def kernels_remedy(gfxs: Collection[str]) -> str:
    """How to get the kernels of these GPUs: a channel need not have the package of every GPU."""
    packages = " ".join(f"flash-attn-rocm-kernels-{gfx}" for gfx in gfxs)
    build = f"GPU_ARCHS={','.join(gfxs)} ./pixiw run build --profile full"
    return f"conda install {packages} (where no channel has it, `{build}` in this project's repository makes it)"


class FlashAttnRocmError(Exception):
    """Base of all errors of this package; `fix` is the end of the message: what to do next, where that stands apart."""

    fix = ""

    @property
    def problem(self) -> str:
        """The message without its fix."""
        return str(self).removesuffix(self.fix).rstrip()


class ArchTableError(FlashAttnRocmError, ValueError):
    """A GPU table (`archs/gfx*.toml`) is malformed."""

    def __init__(self, path: Path, problem: str) -> None:
        self.path = path
        super().__init__(f"{path}: {problem}")


class UnsupportedGpuError(FlashAttnRocmError, ValueError):
    """A GPU that has no table: `asked_by` a variable or an option, else the machine's, of which `note` tells."""

    def __init__(self, gfx: str, supported: tuple[str, ...], asked_by: str = "", note: str = "") -> None:
        self.gfx = gfx
        self.supported = supported
        self.fix = (
            f"Give {asked_by} one of these, or leave it out."
            if asked_by
            else "Set FLASH_ATTN_ROCM_BACKEND=sdpa to run on torch's own attention."
        )
        before = asked_by or note
        super().__init__(
            f"{before and before + ': '}GPU {gfx!r} is not supported; supported: {', '.join(supported)}. {self.fix}"
        )


class InputError(FlashAttnRocmError, ValueError):
    """An argument of an attention function is not usable: wrong rank, dtype, device, shape or value."""


class BackendChoiceError(FlashAttnRocmError, ValueError):
    """An environment variable of this package asks for something that cannot be done here."""


class KernelUnavailableError(FlashAttnRocmError, NotImplementedError):
    """The kernels installed for this GPU do not cover the request (feature, head dim or dtype)."""


class KernelsNotInstalledError(FlashAttnRocmError, RuntimeError):
    """The package with this GPU's kernels is not installed; `note` is what else is to be said of the GPU."""

    def __init__(self, gfx: str, searched: tuple[Path, ...], installed: Collection[str] = (), note: str = "") -> None:
        self.gfx = gfx
        self.searched = searched
        self.installed = tuple(sorted(installed))
        places = (
            ", ".join(str(path / gfx / "kernels.json") for path in searched) or "nowhere: no kernel directory exists"
        )
        self.fix = (
            f"Install them: {kernels_remedy([gfx])}. "
            "Or set FLASH_ATTN_ROCM_BACKEND=sdpa to run on torch's own attention."
        )
        super().__init__(
            f"No kernels for GPU {gfx!r} are installed (searched: {places}; installed: kernels for "
            f"{', '.join(self.installed) or 'no GPU'}). {note and note + '. '}{self.fix}"
        )


class KernelManifestError(FlashAttnRocmError, RuntimeError):
    """A GPU's kernels.json is damaged or of another version."""

    def __init__(self, path: Path, problem: str) -> None:
        self.path = path
        self.fix = f"Reinstall the kernels: conda install --force-reinstall flash-attn-rocm-kernels-{path.parent.name}"
        super().__init__(f"{path}: {problem}. {self.fix}")


class LibraryNotFoundError(FlashAttnRocmError, RuntimeError):
    """A binary file of this package (host library or emulated runtime) is missing or does not load."""

    def __init__(self, what: str, path: Path, remedy: str, reason: str = "no such file") -> None:
        self.path = path
        self.fix = remedy
        super().__init__(f"{what} {path}: {reason}. {remedy}")


class PolicyFileError(FlashAttnRocmError, ValueError):
    """The user's policy file is malformed."""

    def __init__(self, path: Path, line: int | None, problem: str) -> None:
        self.path = path
        self.line = line
        self.fix = (
            "Mend that, or delete the file: then the package's own table decides. `flash-attn-rocm tune` writes a new "
            "one; FLASH_ATTN_ROCM_BACKEND overrides it"
        )
        place = f"{path}, line {line}" if line else str(path)
        super().__init__(f"policy file {place}: {problem}. {self.fix}")
