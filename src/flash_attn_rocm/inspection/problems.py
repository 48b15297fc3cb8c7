"""What is wrong with an installation, from facts alone: each problem with what mends it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from flash_attn_rocm import environment
from flash_attn_rocm.archs import load_archs
from flash_attn_rocm.errors import kernels_remedy
from flash_attn_rocm.gpu_identity import Override
from flash_attn_rocm.inspection.gpus import DriverGpus
from flash_attn_rocm.inspection.hip_runtimes import Runtime

OLDEST_TORCH = (2, 11)
# ROCm's variable that makes one GPU of several pose as another.
_POSE_ONE = re.compile(rf"{environment.GFX_OVERRIDE}_\d+")
_HIDE = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
# Variables of others that change what a call runs, or that look as if they did.
_OTHERS = {
    "FLASH_ATTENTION_TRITON_AMD_ENABLE": "chooses a backend of the original flash_attn; this package does not read it",
    "TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL": "lets torch's own attention use kernels that torch calls experimental",
    "LD_PRELOAD": "can put another HIP runtime before torch's",
}
# The local part of the version of flash-attn-rocm-compat's distribution.
_OWN_TAG = "+flash.attn.rocm"
SEVERITIES = ("error", "warning", "note")


@dataclass(frozen=True)
class Problem:
    """One finding: `id` stays the same in later versions; an "error" stops GPU calls, a "note" may be as intended."""

    id: str
    severity: str
    problem: str
    fix: str


@dataclass(frozen=True)
class Facts:
    """What the checks look at."""

    torch_version: str
    torch_hip: str | None
    torch_gpus: tuple[str, ...]  # gfx names of the AMD GPUs that torch sees
    driver: DriverGpus
    variables: Mapping[str, str]
    emulated: tuple[str, ...]
    kernels: tuple[str, ...]  # gfx names whose kernels are installed
    loaded: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    installed: tuple[Runtime, ...] = ()
    override: Override | None = None
    flash_attn: str | None = None  # version of the distribution of that name
    policy_lacks: bool = False  # there is no policy file


def reported_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Every variable that is set and has a part in what runs: this package's and others'."""
    mine = [name for name in environment.REPORTED if name in variables]
    poses = sorted(name for name in variables if _POSE_ONE.fullmatch(name))
    others = [name for name in (*_OTHERS, *_HIDE, "ROCM_PATH", "HIP_PATH", "LD_LIBRARY_PATH") if name in variables]
    return {name: variables[name] for name in (*mine, *poses, *others)}


def _posing(facts: Facts) -> Iterator[Problem]:
    if facts.override:
        severity = "note" if facts.override.harmless else "error"
        fix = f"{environment.GFX_OVERRIDE}: {facts.override.fix}"
        yield Problem("gpu-poses-as-another", severity, f"{facts.override.problem}.", fix)
    for name, value in facts.variables.items():
        if value and _POSE_ONE.fullmatch(name):
            yield Problem(
                "gpu-poses-as-another",
                "warning",
                f"{name}={value} makes one GPU pose as another, whose code it may not run rightly.",
                f"Unset {name}, and install the kernels of the card itself",
            )


def _other_variables(facts: Facts) -> Iterator[Problem]:
    for name, meaning in _OTHERS.items():
        if value := facts.variables.get(name):
            yield Problem(
                "override-variable",
                "note",
                f"{name}={value} {meaning}.",
                f"Unset {name} unless that is meant; FLASH_ATTN_ROCM_BACKEND chooses the backend here",
            )
    if value := facts.variables.get(environment.BACKEND):
        yield Problem(
            "backend-forced",
            "note",
            f"{environment.BACKEND}={value} overrides the policy of every GPU.",
            f"Unset {environment.BACKEND} to follow the policy",
        )
    if facts.emulated and facts.torch_gpus:
        yield Problem(
            "emulator-in-use",
            "error",
            f"{environment.EMULATE}={','.join(facts.emulated)} makes the emulated HIP runtime the one of this process, "
            f"though torch sees {', '.join(facts.torch_gpus)}: tensors on the GPU are refused.",
            f"Unset {environment.EMULATE}",
        )


def _unread_variables(facts: Facts) -> Iterator[Problem]:
    for name in sorted(facts.variables):
        if not name.startswith(environment.PREFIX) or name in environment.KNOWN:
            continue
        nearest = difflib.get_close_matches(name, environment.KNOWN, n=1, cutoff=0.0)[0]
        yield Problem(
            "unknown-variable",
            "warning",
            f"{name}={facts.variables[name]} is read by nothing: there is no variable of this name.",
            f"Set {nearest} if that was meant, and unset {name}",
        )


def _policy_file(facts: Facts) -> Iterator[Problem]:
    if facts.policy_lacks and (path := facts.variables.get(environment.POLICY)):
        yield Problem(
            "policy-file",
            "warning",
            f"{environment.POLICY}={path} names no file: the package's own table decides.",
            f"Correct the path, or unset {environment.POLICY}; `flash-attn-rocm tune` writes such a file",
        )


def _torch(facts: Facts) -> Iterator[Problem]:
    numbers = tuple(int(part) for part in re.findall(r"\d+", facts.torch_version)[:2])
    if numbers < OLDEST_TORCH:
        yield Problem(
            "torch-too-old",
            "error",
            f"torch {facts.torch_version} lacks the stable interface that the library is built on.",
            "Install torch 2.11 or later, built for ROCm",
        )
    if facts.driver.names and facts.torch_hip is None:
        yield Problem(
            "torch-without-rocm",
            "error",
            f"The machine has {', '.join(facts.driver.names)}, but torch {facts.torch_version} is not built for ROCm.",
            'Install a ROCm build of torch, for example conda install "pytorch=*=*rocm*" from a channel that has one',
        )


def _unseen_gpus(facts: Facts) -> Iterator[Problem]:
    if facts.driver.usable is False:
        yield Problem(
            "gpu-not-permitted",
            "error",
            "This user may not open /dev/kfd, so that no program of theirs can use an AMD GPU.",
            "Add the user to the groups of that file (`sudo usermod -aG render,video $USER`) and log in again",
        )
        return
    if facts.torch_hip is None or len(facts.torch_gpus) >= len(facts.driver.names):
        return
    hiding = [f"{name}={facts.variables[name]}" for name in _HIDE if name in facts.variables]
    yield Problem(
        "gpus-hidden",
        "warning" if facts.torch_gpus else "error",
        f"The driver reports {len(facts.driver.names)} GPUs ({', '.join(facts.driver.names)}), torch sees "
        f"{len(facts.torch_gpus)}" + (f"; set: {', '.join(hiding)}." if hiding else "."),
        f"Unset {', '.join(text.partition('=')[0] for text in hiding)}"
        if hiding
        else "Run `rocminfo`: where it lacks the GPU too, driver and ROCm do not fit; else torch's ROCm lacks it",
    )


def _wrong_kernels(facts: Facts) -> Iterator[Problem]:
    gpus = facts.torch_gpus or facts.driver.names
    if gpus and facts.kernels and not set(gpus) & set(facts.kernels):
        wanted = [gfx for gfx in dict.fromkeys(gpus) if gfx in load_archs()]
        yield Problem(
            "kernels-of-another-gpu",
            "warning",
            f"Kernels are installed for {', '.join(facts.kernels)}, but the GPU is {', '.join(dict.fromkeys(gpus))}.",
            kernels_remedy(wanted)
            if wanted
            else "There are no kernels for it in this version: set FLASH_ATTN_ROCM_BACKEND=sdpa to run on torch's own",
        )


def _runtimes(facts: Facts) -> Iterator[Problem]:
    for library, files in facts.loaded.items():
        if len(files) > 1:
            yield Problem(
                "two-runtimes-loaded",
                "error",
                f"This process has loaded {len(files)} copies of {library}: {', '.join(files)}. Pointers of one are "
                "garbage to the other.",
                "Keep the one that torch brings: take the other's directory out of LD_LIBRARY_PATH and LD_PRELOAD, or "
                "uninstall the package that loads it",
            )
    if len(facts.installed) > 1:
        places = ", ".join(f"{runtime.path} ({runtime.where})" for runtime in facts.installed)
        yield Problem(
            "several-runtimes-installed",
            "note",
            f"{len(facts.installed)} HIP runtimes are installed: {places}. This package uses the one that torch has "
            "loaded, but a program that finds another first has two in one process.",
            "Keep one where you can: an environment with torch's own ROCm needs none in LD_LIBRARY_PATH",
        )


def _import_name(facts: Facts) -> Iterator[Problem]:
    if facts.flash_attn is not None and _OWN_TAG not in facts.flash_attn:
        yield Problem(
            "flash-attn-from-elsewhere",
            "note",
            f"`import flash_attn` gives flash_attn {facts.flash_attn}, not this package.",
            "For programs that import flash_attn: uninstall it and conda install flash-attn-rocm-compat",
        )


_CHECKS = (
    _posing,
    _torch,
    _unseen_gpus,
    _wrong_kernels,
    _runtimes,
    _unread_variables,
    _policy_file,
    _other_variables,
    _import_name,
)


def find_problems(facts: Facts, others: Iterable[Problem] = ()) -> list[Problem]:
    """Every finding and `others`, in the order in which to mend them."""
    found = [problem for check in _CHECKS for problem in check(facts)]
    return sorted([*found, *others], key=lambda problem: SEVERITIES.index(problem.severity))
