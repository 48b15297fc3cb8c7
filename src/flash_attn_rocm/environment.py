"""The environment variables this package reads: their names, what some of them ask for, and others with its prefix."""

from __future__ import annotations

import os

from flash_attn_rocm.errors import BackendChoiceError

BACKEND = "FLASH_ATTN_ROCM_BACKEND"
EMULATE = "FLASH_ATTN_ROCM_EMULATE"
KERNELS = "FLASH_ATTN_ROCM_KERNELS"
LIBRARY = "FLASH_ATTN_ROCM_LIBRARY"
EMULATOR = "FLASH_ATTN_ROCM_EMULATOR"
HIP_LIBRARY = "FLASH_ATTN_ROCM_HIP_LIBRARY"
CHECK_VALUES = "FLASH_ATTN_ROCM_CHECK_VALUES"
POLICY = "FLASH_ATTN_ROCM_POLICY"
GFX_OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"  # ROCm's: makes every GPU pose as another

# Everything in the environment that the choice of a backend depends on, but POLICY, which is read once per process.
CHOICE = (BACKEND, EMULATE, KERNELS)
# What a bug report should show.
REPORTED = (*CHOICE, LIBRARY, EMULATOR, HIP_LIBRARY, CHECK_VALUES, POLICY, GFX_OVERRIDE)

PREFIX = "FLASH_ATTN_ROCM_"
# Every name with the prefix that something reads: this package, the emulator (emulator/README.md) and the build.
KNOWN = (
    *(name for name in REPORTED if name.startswith(PREFIX)),
    *(PREFIX + name for name in ("EMULATOR_CHECKS", "EMULATOR_SEED", "EMULATOR_INSTRUCTION_LIMIT", "LLVM_OBJDUMP")),
    PREFIX + "CACHE",
)


# What FLASH_ATTN_ROCM_BACKEND may be, and the backends that it forces forward and backward.
CK_FORWARD_ONLY = "ck,sdpa"
FORCED: dict[str, tuple[str | None, str | None]] = {
    "ck": ("ck", "ck"),
    "sdpa": ("sdpa", "sdpa"),
    CK_FORWARD_ONLY: ("ck", "sdpa"),
}


def forced_backward() -> str | None:
    """The backend of gradients that FLASH_ATTN_ROCM_BACKEND forces; None where the policy decides."""
    return FORCED.get(os.environ.get(BACKEND, ""), (None, None))[1]


# os.environ.get encodes, looks up and decodes: a microsecond for each variable, in every attention call.
_CHOICE_KEYS = tuple(os.environ.encodekey(name) for name in CHOICE)


def choice_values() -> tuple[object, ...]:
    """The values of CHOICE as they are now, to be compared only."""
    get = os.environ._data.get  # type: ignore[attr-defined]
    return tuple([get(key) for key in _CHOICE_KEYS])


_CHECK_VALUES_KEY = os.environ.encodekey(CHECK_VALUES)
_CHECK_VALUES = {os.environ.encodevalue("0"): False, os.environ.encodevalue("1"): True}


def check_values() -> bool | None:
    """Whether CHECK_VALUES asks to look at lengths and page numbers; None where it is unset.

    Raises:
        BackendChoiceError: the variable is neither 0 nor 1.
    """
    value = os.environ._data.get(_CHECK_VALUES_KEY)  # type: ignore[attr-defined]
    if value and value not in _CHECK_VALUES:
        raise BackendChoiceError(f"{CHECK_VALUES} is {os.environ[CHECK_VALUES]!r}; expected 0 or 1, or unset it")
    return _CHECK_VALUES[value] if value else None


def emulated_gpus() -> tuple[str, ...]:
    """GPUs named in FLASH_ATTN_ROCM_EMULATE, in order; empty when nothing is to be emulated.

    Raises:
        BackendChoiceError: the variable is set but names no GPU, or one with feature suffixes.
    """
    value = os.environ.get(EMULATE, "")
    names = tuple(part.strip() for part in value.split(",") if part.strip())
    expected = "expected GPU names such as gfx1201, separated by commas"
    if value.strip() and not names:
        raise BackendChoiceError(f"{EMULATE} is {value!r} and names no GPU; {expected}, or unset it")
    for name in names:
        if ":" in name:
            raise BackendChoiceError(f"{EMULATE} names {name!r}; {expected}, without feature suffixes")
    return names


def normalise_emulated_gpus() -> None:
    """Write FLASH_ATTN_ROCM_EMULATE back without blanks and empty parts: the emulator itself takes no others."""
    if os.environ.get(EMULATE) is not None:
        os.environ[EMULATE] = ",".join(emulated_gpus())
