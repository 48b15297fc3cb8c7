"""What is installed, what would run and why: one report for people and for bug reports.

Its form as JSON is described in schemas/info.json; `schema` counts up when a key changes its meaning or goes.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from flash_attn_rocm import environment, paths, policy
from flash_attn_rocm.archs import load_arch, load_archs
from flash_attn_rocm.backends import Choice, Rules, backward_choice, choice_for, gpu_name
from flash_attn_rocm.errors import FlashAttnRocmError, KernelManifestError
from flash_attn_rocm.gpu_identity import find_override
from flash_attn_rocm.inspection import gpus, hip_runtimes
from flash_attn_rocm.inspection.coverage import CALLS, Call, Cover, cover
from flash_attn_rocm.inspection.problems import Facts, Problem, find_problems, reported_variables
from flash_attn_rocm.kernel_manifest import read_manifest

SCHEMA = 2
_SEE_MESSAGE = "The problem's text says what is allowed"


@dataclass(frozen=True)
class Info:
    """The report; `as_dict` of it is JSON-able, in the form of schemas/info.json."""

    packages: dict[str, str | None]
    environment: dict[str, str]
    library: dict[str, Any]
    hip: dict[str, Any]
    gpus: list[dict[str, Any]]
    kernels: dict[str, dict[str, Any]]
    policy: dict[str, Any]
    runs: list[dict[str, Any]]
    problems: list[dict[str, str]] = field(default_factory=list)
    schema: int = SCHEMA

    def as_dict(self) -> dict[str, Any]:
        """The report as plain dictionaries, lists and strings."""
        return asdict(self)


class _Report:
    """Collects problems while the parts of the report are made."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.manifests: dict[str, dict[str, Any]] = {}
        self.rule_for: Rules = policy.rule_for

    def add(self, name: str, problem: str, fix: str) -> None:
        """One error, unless the same text stands there already."""
        if problem not in [known.problem for known in self.problems]:
            self.problems.append(Problem(name, "error", problem, fix or _SEE_MESSAGE))

    def add_error(self, name: str, error: Exception, where: str = "") -> None:
        """An error that was raised while a part was made, unless another part has raised it before."""
        if isinstance(error, FlashAttnRocmError) and error.problem in [known.problem for known in self.problems]:
            return
        if isinstance(error, FlashAttnRocmError):
            self.add(name, f"{where}{error.problem}", error.fix)
        else:
            self.add(name, f"{where}{error}", "")

    def emulated(self) -> tuple[str, ...]:
        """The GPUs to emulate; a malformed variable, or one that names an unknown GPU, is a problem."""
        try:
            names = environment.emulated_gpus()
            for name in names:
                load_arch(name, environment.EMULATE)
            return names
        except FlashAttnRocmError as error:
            self.add_error("bad-variable", error)
            return ()

    def check_switches(self) -> None:
        """A variable that is on or off and says neither is a problem: every call would raise."""
        try:
            environment.check_values()
        except FlashAttnRocmError as error:
            self.add_error("bad-variable", error)

    def kernels(self) -> dict[str, dict[str, Any]]:
        """A summary of each installed kernels.json."""
        try:
            manifests = paths.find_manifests()
        except FlashAttnRocmError as error:
            self.add_error("bad-variable", error)
            return {}
        for gfx, path in manifests.items():
            try:
                self.manifests[gfx] = read_manifest(path)
            except KernelManifestError as error:
                self.add_error("kernels-damaged", error)
        return {gfx: _summarise(manifests[gfx], manifest) for gfx, manifest in self.manifests.items()}

    def library(self, needs_hip: bool) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
        """The host library, the HIP runtime it uses and the devices that this reports (where a GPU call could run)."""
        from flash_attn_rocm import ops

        report: dict[str, Any] = {"path": str(paths.library_path()), "version": None, "kernel_paths": []}
        try:
            report["version"] = ops.load().fa_rocm_version().decode()
            described = json.loads(ops.read_json("fa_rocm_describe"))
        except (FlashAttnRocmError, RuntimeError) as error:
            self.add_error("library-not-usable", error)
            return report, {}, []
        report["kernel_paths"] = described["kernel_paths"]
        if not needs_hip:
            return report, {}, []
        hip = described["hip"]
        if text := hip.pop("error", None):
            self.add(
                "hip-runtime-not-usable",
                text,
                "Install a ROCm build of torch, which brings one (ROCm 6 or 7), or set FLASH_ATTN_ROCM_HIP_LIBRARY",
            )
        return report, hip, described["devices"]

    def devices(self, devices: list[dict[str, Any]]) -> None:
        """Errors of devices that the host library found, unless they are known to run nothing already."""
        if "nothing-runs" in [problem.id for problem in self.problems]:
            return
        for device in devices:
            if error := device.get("error"):
                fix = "Install the package that the problem names, or set FLASH_ATTN_ROCM_BACKEND=sdpa"
                self.add("device-not-usable", f"GPU {device['index']}: {error}", fix)

    def rules(self, names: list[str]) -> dict[str, Any]:
        """The policy of each of these GPUs, and the user's file."""
        path = policy.user_file()
        rows = []
        try:
            policy.user_rules()
        except FlashAttnRocmError as error:
            self.add_error("policy-file", error)
            self.rule_for = policy.table_rule
        for gfx in names:
            if gfx in load_archs():
                rows += [
                    {"gfx": gfx, "direction": direction, **asdict(self.rule_for(gfx, direction))}
                    for direction in policy.DIRECTIONS
                ]
        exists = os.access(path, os.F_OK)  # Path.exists raises where the name is too long
        return {"user_file": str(path), "user_file_exists": exists, "rules": rows}

    def runs(self, devices: list[tuple[str, int | None]]) -> list[dict[str, Any]]:
        """What would run on each device: one row where torch's attention does all, else one for each kind of call."""
        rows: list[dict[str, Any]] = []
        for device_type, index in devices:
            name = device_type if index is None else f"{device_type}:{index}"
            row: dict[str, Any] = {
                "device": name,
                "gfx": None,
                "call": "every call",
                "backend": None,
                "dtypes": [],
                "head_dims": {},
            }
            try:
                choice = choice_for(device_type, index)
            except FlashAttnRocmError as error:
                self.add_error("nothing-runs", error, f"{name}: ")
                rows.append(row | {"reason": error.problem})
                continue
            row |= {"gfx": choice.gfx, "backend": choice.backend, "reason": choice.reason}
            if choice.backend != "ck" or choice.gfx not in self.manifests:
                rows.append(row)
                continue
            manifest = self.manifests[choice.gfx]
            rows += [row | run for call in CALLS for run in _runs(call, choice, manifest, self.rule_for)]
        return rows


def _summarise(path: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    kernels = manifest["kernels"]
    return {
        "path": str(path),
        "profile": manifest["profile"],
        "compiler": manifest["compiler"],
        "ck": manifest["ck"],
        "kernels": len(kernels),
        "code_objects": len(manifest["code_objects"]),
        "head_dims": sorted({kernel["hdim_q"] for kernel in kernels if kernel["op"].startswith("fmha_fwd")}),
        "dtypes": sorted({kernel["dtype"] for kernel in kernels}),
        "ops": sorted({kernel["op"] for kernel in kernels}),
    }


def _runs(call: Call, choice: Choice, manifest: dict[str, Any], rule_for: Rules) -> Iterator[dict[str, Any]]:
    """Which backend a kind of call gets on a GPU with CK forward; apart, where more is covered without mask."""
    gfx = str(choice.gfx)
    reason = choice.reason
    if call.direction == "backward":
        backward = backward_choice(gfx, rule_for)
        reason = backward.reason
        if backward.backend == "sdpa":
            yield {"call": call.name, "backend": "sdpa", "reason": reason}
            return
    covered, without_mask = (cover(manifest["kernels"], call, masked) for masked in (True, False))
    if covered or not without_mask:
        yield {"call": call.name} | (_covered(covered, reason) if covered else _lacking(call, manifest))
    if without_mask != covered:
        yield {"call": f"{call.name}, not causal, no window"} | _covered(without_mask, reason)
        if not covered:
            yield {"call": f"{call.name}, causal or window"} | _lacking(call, manifest)


def _covered(covered: Cover, reason: str) -> dict[str, Any]:
    return {"backend": "ck", "reason": reason, "dtypes": list(covered), "head_dims": covered}


def _lacking(call: Call, manifest: dict[str, Any]) -> dict[str, Any]:
    gfx = manifest["gfx"]
    reason = f"the installed kernels for {gfx} (profile {manifest['profile']}) have none for it"
    if call.direction == "backward":
        return {"backend": "sdpa", "reason": reason}
    fix = f"`./pixiw run build --arch {gfx} --profile full` builds them, FLASH_ATTN_ROCM_BACKEND=sdpa does without"
    return {"backend": None, "reason": f"{reason}: it raises; {fix}"}


def _distribution(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _conda_packages(prefix: Path) -> dict[str, str | None]:
    """Version and build of each conda package of this project in an environment, from the names of its records."""
    records = sorted((prefix / "conda-meta").glob("flash-attn-rocm*.json"))
    parts = [record.stem.rsplit("-", 2) for record in records]
    return {f"conda package {name}": f"{version} {build}" for name, version, build in parts}


def _packages() -> dict[str, str | None]:
    return {
        "flash-attn-rocm": _distribution("flash-attn-rocm"),
        "flash_attn": _distribution("flash_attn"),
        "torch": torch.__version__,
        "torch built for HIP": torch.version.hip,
        "torch built for CUDA": torch.version.cuda,
        "triton": _distribution("triton"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        **_conda_packages(Path(sys.prefix)),
    }


def _devices() -> list[tuple[str, int | None]]:
    devices: list[tuple[str, int | None]] = [("cpu", None)]
    if torch.cuda.is_available():
        devices += [("cuda", index) for index in range(torch.cuda.device_count())]
    return devices


def _torch_gpus() -> Iterator[dict[str, Any]]:
    for _, index in _devices()[1:]:
        gfx = gpu_name(index) if index is not None and torch.version.hip is not None else None
        yield _gpu("torch", index, torch.cuda.get_device_name(index), gfx)


def _gpu(found_by: str, index: int | None, name: str | None, gfx: str | None) -> dict[str, Any]:
    arch = load_archs().get(gfx or "")
    row: dict[str, Any] = {"found_by": found_by, "index": index, "name": name, "gfx": gfx}
    return row | {"products": list(arch.products) if arch else [], "kernels_exist": arch is not None}


def info() -> Info:
    """Report packages, library, HIP runtime, GPUs, installed kernels, what would run and why, and problems."""
    report = _Report()
    emulated = report.emulated()
    report.check_switches()
    seen = list(_torch_gpus())
    torch_gpus = tuple(str(row["gfx"]) for row in seen if row["gfx"])
    kernels = report.kernels()
    library, hip, devices = report.library(needs_hip=bool(emulated or torch_gpus))
    driver = gpus.find_driver_gpus()
    found = seen + [_gpu("kernel driver", index, None, gfx) for index, gfx in enumerate(driver.names)]
    if hip.get("emulated"):
        found += [_gpu("emulated HIP runtime", row["index"], row.get("name"), row.get("gfx")) for row in devices]
    names = list(dict.fromkeys(str(row["gfx"]) for row in found if row["gfx"]))
    rules = report.rules(names)
    runs = report.runs(_devices())
    report.devices(devices)
    # The emulated runtime is no ROCm: it may stand beside one.
    emulator = paths.emulator_dir().resolve()
    loaded = {
        name: tuple(file for file in files if Path(file).parent.resolve() != emulator)
        for name, files in (hip_runtimes.loaded_libraries() or {}).items()
    }
    torch_directory = Path(torch.__file__).parent
    facts = Facts(
        torch_version=torch.__version__,
        torch_hip=torch.version.hip,
        torch_gpus=torch_gpus,
        driver=driver,
        variables=dict(os.environ),
        emulated=emulated,
        kernels=tuple(kernels),
        loaded=loaded,
        installed=tuple(hip_runtimes.installed_runtimes(os.environ, torch_directory, [emulator])),
        override=find_override(load_archs()),
        flash_attn=_distribution("flash_attn"),
        policy_lacks=not rules["user_file_exists"],
    )
    return Info(
        packages=_packages(),
        environment=reported_variables(os.environ),
        library=library,
        hip={
            **hip,
            "loaded": {k: list(v) for k, v in loaded.items()},
            "installed": [asdict(r) for r in facts.installed],
        },
        gpus=found,
        kernels=kernels,
        policy=rules,
        runs=runs,
        problems=[asdict(problem) for problem in find_problems(facts, report.problems)],
    )
