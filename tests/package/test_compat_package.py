"""flash-attn-rocm-compat as a program finds it: files, metadata, and the modules in the installed environment."""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from conda_package_handling import api
from packaging.version import Version

from flash_attn_rocm import __version__

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def package(dist: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compat")
    api.extract(str(dist["flash-attn-rocm-compat"]), str(folder))
    return folder


def _info(package: Path, name: str) -> dict[str, Any]:
    table: dict[str, Any] = json.loads((package / "info" / f"{name}.json").read_text(encoding="utf-8"))
    return table


def _in_environment(environment: Path, code: str, **variables: str) -> Any:
    """What a program prints as JSON in build/env, without any variable of this environment."""
    command = [str(environment / "bin" / "python"), "-c", code]
    done = subprocess.run(command, env=variables, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_it_holds_the_modules_of_the_source_and_metadata_and_nothing_else(package: Path) -> None:
    files = {row["_path"].removeprefix("site-packages/") for row in _info(package, "paths")["paths"]}
    modules = {path.relative_to(ROOT / "compat").as_posix() for path in (ROOT / "compat").rglob("*.py")}
    others = {name for name in files - modules if ".dist-info/" not in name}
    assert modules <= files
    assert others == set()
    assert not [name for name in files if name.endswith("direct_url.json") or name.startswith("flash_attn/cute")]
    (metadata,) = [name for name in files if name.endswith(".dist-info/METADATA")]
    assert (package / "site-packages" / metadata).read_text(encoding="utf-8").splitlines()[1] == "Name: flash_attn"


def test_it_keeps_the_other_provider_away_and_needs_the_same_version(package: Path) -> None:
    index = _info(package, "index")
    assert (index["noarch"], index["subdir"]) == ("python", "noarch")
    assert index["constrains"] == ["flash-attn <0a0"]
    assert set(index["depends"]) == {"python >=3.11", f"flash-attn-rocm =={index['version']}"}


def test_pip_is_told_of_the_same_version() -> None:
    table = tomllib.loads((ROOT / "compat" / "pyproject.toml").read_text(encoding="utf-8"))
    assert table["project"]["dependencies"] == [f"flash-attn-rocm=={__version__}"]


METADATA = """
import json, flash_attn, importlib.metadata as metadata
print(json.dumps([
    metadata.version("flash_attn"),
    metadata.version("flash-attn"),
    flash_attn.__version__,
    metadata.packages_distributions()["flash_attn"],
    flash_attn.__file__,
]))
"""


def test_the_version_that_programs_compare(environment: Path) -> None:
    """They ask importlib.metadata by either spelling, parse with packaging and compare; 2.8.x passes all in use."""
    by_name, by_other_name, by_module, distributions, file = _in_environment(environment, METADATA)
    assert by_name == by_other_name == by_module
    assert distributions == ["flash_attn"]
    assert Path(file).is_relative_to(environment)
    version = Version(by_module)
    assert version.release[:2] == (2, 8)
    assert not version.is_prerelease
    assert version.local == f"flash.attn.rocm.{__version__}"
    for least in ("2.0.4", "2.1.0", "2.3.3", "2.4.1", "2.6.3", "2.7.0"):
        assert version >= Version(least)


def test_another_distribution_may_add_to_the_namespace(environment: Path, tmp_path: Path) -> None:
    cute = tmp_path / "flash_attn" / "cute"
    cute.mkdir(parents=True)
    (cute / "__init__.py").write_text("NAME = 'theirs'\n", encoding="utf-8")
    code = (
        "import json, flash_attn; from flash_attn.cute import NAME; print(json.dumps([NAME, flash_attn.__version__]))"
    )
    name, version = _in_environment(environment, f"import sys; sys.path.append({str(tmp_path)!r}); {code}")
    assert name == "theirs"
    assert version.startswith("2.8.")


def test_flash_attn_cute_is_not_there(environment: Path) -> None:
    """Programs that find it believe that FlashAttention-4 is installed."""
    assert _in_environment(
        environment,
        "import importlib.util, json; print(json.dumps(importlib.util.find_spec('flash_attn.cute') is None))",
    )


ATTENTION = """
import json, torch, flash_attn, flash_attn_2_cuda
from flash_attn.bert_padding import pad_input, unpad_input
from flash_attn.layers.rotary import apply_rotary_emb
q, k, v = (torch.randn(2, 9, heads, 64).half() for heads in (4, 2, 2))
exact = torch.nn.functional.scaled_dot_product_attention(
    *(t.transpose(1, 2).double() for t in (q, k, v)), is_causal=True, enable_gqa=True).transpose(1, 2)
by_name = flash_attn.flash_attn_func(q, k, v, causal=True)
by_position = flash_attn_2_cuda.fwd(q, k, v, None, None, 0.0, 0.125, True, -1, -1, 0.0, False, None)[0]
packed, indices, cu, longest, used = unpad_input(q, torch.ones(2, 9, dtype=torch.bool))
turned = apply_rotary_emb(q, torch.ones(9, 32), torch.zeros(9, 32))
print(json.dumps([
    max((out.double() - exact).abs().max().item() for out in (by_name, by_position)),
    torch.equal(pad_input(packed, indices, 2, 9), q) and torch.equal(turned, q),
]))
"""


def test_its_functions_compute(environment: Path) -> None:
    error, helpers_agree = _in_environment(environment, ATTENTION)
    assert error <= 2e-3
    assert helpers_agree
