"""What the kernel driver shows of a machine's processors, as files."""

from __future__ import annotations

from pathlib import Path


def make_nodes(root: Path, *versions: int) -> Path:
    """One node per processor and its gfx_target_version, 0 for a CPU; the directory of the nodes."""
    for index, version in enumerate(versions):
        node = root / "nodes" / str(index)
        node.mkdir(parents=True)
        (node / "properties").write_text(f"cpu_cores_count 8\ngfx_target_version {version}\nvendor_id 4098\n")
    return root / "nodes"
