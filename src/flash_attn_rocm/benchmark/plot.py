"""Draws a benchmark as a PNG: TFLOPS over the sequence length, one line a method. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flash_attn_rocm.errors import InputError


def need_matplotlib() -> Any:
    """matplotlib's pyplot without a display.

    Raises:
        InputError: it is not installed.
    """
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise InputError(
            "--plot needs matplotlib, which is not installed: conda install matplotlib-base, or leave --plot out"
        ) from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def draw(document: dict[str, Any], path: Path) -> None:
    """Write the picture.

    Raises:
        InputError: matplotlib is not installed, or the file cannot be written.
    """
    pyplot = need_matplotlib()
    results = [result for result in document["results"] if result["tflops"]]
    directions = list(dict.fromkeys(result["direction"] for result in results)) or ["forward"]
    figure, axes = pyplot.subplots(1, len(directions), figsize=(6.4 * len(directions), 4.8), squeeze=False)
    for axis, direction in zip(axes[0], directions, strict=True):
        for number, (name, entry) in enumerate(document["machine"]["methods"].items()):
            points = [(r["seqlen"], r["tflops"]) for r in results if (r["direction"], r["method"]) == (direction, name)]
            if points:
                axis.plot(*zip(*sorted(points), strict=True), marker="o", label=entry["title"], color=f"C{number}")
        axis.set_xscale("log", base=2)
        lengths = sorted({result["seqlen"] for result in results})
        axis.set_xticks(lengths, [str(length) for length in lengths])
        axis.set_ylim(bottom=0)
        axis.set_title(direction)
        axis.set_xlabel("sequence length")
        axis.set_ylabel("TFLOPS")
        axis.grid(alpha=0.3)
        if axis.has_data():
            axis.legend()
    machine = document["machine"]
    figure.suptitle(f"{machine['gpu'] or machine['device']}, torch {machine['torch']}")
    figure.tight_layout()
    try:
        figure.savefig(path, format="png", dpi=120)
    except OSError as error:
        raise InputError(f"--plot {path}: cannot be written: {error.strerror}") from error
    finally:
        pyplot.close(figure)
