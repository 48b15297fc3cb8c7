"""Every exception this package raises on its own behalf. Each says what failed, the value, what is allowed, what to do."""

from __future__ import annotations

from pathlib import Path


class FlashAttnRocmError(Exception):
    """Base of all errors of this package."""


class ArchTableError(FlashAttnRocmError, ValueError):
    """A GPU table (`archs/gfx*.toml`) is malformed."""

    def __init__(self, path: Path, problem: str) -> None:
        self.path = path
        super().__init__(f"{path}: {problem}")


class UnsupportedGpuError(FlashAttnRocmError, ValueError):
    """A GPU this package has no table for."""

    def __init__(self, gfx: str, supported: tuple[str, ...]) -> None:
        self.gfx = gfx
        self.supported = supported
        super().__init__(
            f"GPU {gfx!r} is not supported; supported: {', '.join(supported)}. "
            "Set FLASH_ATTN_ROCM_BACKEND=sdpa to run on torch's own attention."
        )
