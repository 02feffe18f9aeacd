"""Recorded rows as PNG files: bars of ratios, the slope of a dispatch, a roofline.

Colours and markers are told apart by colour-blind readers, too.

Source: Okabe and Ito, "Color Universal Design", 2008; Williams, Waterman, Patterson, "Roofline",
2009
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from vklab.apps.compare.speed import markdown
from vklab.apps.compare.speed import record as records
from vklab.apps.compare.speed.measure import Row
from vklab.errors import SetupError

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")
MARKERS = "osD^vP*X"
DPI = 110
WIDE = 1000  # ratio of the longest to the shortest bar with labels at powers of ten only
# Of the roofline: points in a decade of the vertical axis, and decades that a label takes up.
POINTS, LABEL = 100, (0.14, 0.07)


def load_pyplot() -> ModuleType:
    """Import matplotlib without a window, or raise SetupError with the command that installs it."""
    try:
        import matplotlib
        import matplotlib.pyplot
    except ImportError as error:
        raise SetupError("the plots need matplotlib", "pip install matplotlib") from error
    matplotlib.use("Agg")
    loaded: ModuleType = matplotlib.pyplot
    return loaded


def draw(record: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write the plots of a recorded file into a folder; return the files.

    Plots without data are left out: no chain has no slope, no roofs have no roofline.
    """
    pyplot = load_pyplot()
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    rows = records.rows_of(record)
    runs = record.get("runs") or [record]
    for index, run in enumerate(runs):
        own = [row for row in rows if row.run == index and row.status == "ran" and row.time_us]
        about = run["machine"]
        title = f"{about['device']}, {str(about.get('started', ''))[:10]}"
        made = {
            "ratios": _ratios(pyplot, own, title),
            "slope": _slope(pyplot, own, title),
            "roofline": _roofline(pyplot, own, run.get("roofs"), record.get("models", {}), title),
        }
        for name, figure in made.items():
            if figure is not None:
                path = folder / f"{name}{index or ''}.png"
                figure.savefig(path, dpi=DPI, metadata={"Software": None})
                pyplot.close(figure)
                written.append(path)
    return written


def _style(names: Sequence[str]) -> dict[str, tuple[str, str, str]]:
    """Return colour, marker and hatch by name; hatches tell more than eight names apart."""
    hatches = ("", "//", "..")
    return {
        name: (COLOURS[n % 8], MARKERS[n % 8], hatches[n // 8 % 3]) for n, name in enumerate(names)
    }


def _ratios(pyplot: Any, rows: Sequence[Row], title: str) -> Any:
    """Return horizontal bars: the time of each peer over that of vklab, on a logarithmic axis."""
    shown = [row for row in rows if row.ratio and row.over != row.runner]
    models = list(dict.fromkeys(row.model for row in shown))
    runners = list(dict.fromkeys(row.runner for row in shown))
    if not shown:
        return None
    style = _style(runners)
    height = 0.8 / max(len(runners), 1)
    size = (9, max(3.0, 1.6 + 0.17 * len(models) * max(len(runners), 2)))
    figure, axes = pyplot.subplots(figsize=size, layout="constrained")
    for number, runner in enumerate(runners):
        own = {row.model: row.ratio or 1.0 for row in shown if row.runner == runner}
        at = [models.index(model) + number * height - 0.4 for model in own]
        colour, _, hatch = style[runner]
        axes.barh(
            at,
            [value - 1 for value in own.values()],
            height,
            left=1,
            color=colour,
            hatch=hatch,
            edgecolor="white",
            linewidth=0.3,
            label=runner,
        )
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    values = [row.ratio or 1.0 for row in shown]
    labelled = "246" if max(values) / min(values) < WIDE else ""  # else they would overlap
    axes.xaxis.set_minor_formatter(lambda x, _: f"{x:g}" if f"{x:.0e}"[0] in labelled else "")
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks(range(len(models)), models)
    axes.invert_yaxis()
    axes.set_xlabel("time over vklab's in the same dtype (no unit; right of 1: vklab is faster)")
    axes.set_title(f"Times in one run, {title}", fontsize=10)
    axes.legend(fontsize=7, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.9 / size[1]))
    return figure


def _slope(pyplot: Any, rows: Sequence[Row], title: str) -> Any:
    """Return the time of chains of additions against their length."""
    chains: dict[str, dict[int, float]] = {}
    for row in rows:
        match = re.fullmatch(r"chain_add_(\d+)", row.model)
        if match and row.median_us:
            chains.setdefault(row.runner, {})[int(match[1])] = row.median_us
    chains = {name: points for name, points in chains.items() if len(points) > 1}
    if not chains:
        return None
    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    for name, (colour, marker, hatch) in _style(list(chains)).items():
        points = dict(sorted(chains[name].items()))
        slope = markdown.slope_us(points)
        axes.plot(
            list(points),
            list(points.values()),
            "--" if hatch else "-",
            color=colour,
            marker=marker,
            markerfacecolor="white" if hatch else colour,
            linewidth=1.3,
            label=f"{name}: {slope:.3g} us a node",
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("nodes of a chain of additions of one number")
    axes.set_ylabel("median time of a run in us")
    axes.set_title(f"Cost of a node, {title}", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return figure


def _free(
    taken: list[tuple[float, float]], marks: Sequence[tuple[float, float]], across: float, up: float
) -> int:
    """Return how many points above a mark its label stands clear of the others, and note it there.

    Args:
        taken: decimal logarithms of the places of the labels so far.
        marks: places of all marks.
        across: the place of the mark on the horizontal axis.
        up: its place on the vertical axis.
    """
    offsets = [4, -8, 12, -16, 20, -24, 28, -32, 36, -40, 48, -52]
    places = [(math.log10(across), math.log10(up) + offset / POINTS) for offset in offsets]
    others = [(math.log10(a), math.log10(b)) for a, b in marks if (a, b) != (across, up)]
    clear = [
        all(abs(x - a) > LABEL[0] or abs(y - b) > LABEL[1] for a, b in taken)
        and all(not -0.03 < a - x < LABEL[0] or abs(y - b) > LABEL[1] for a, b in others)
        for x, y in places
    ]
    best = clear.index(True) if True in clear else 0
    taken.append(places[best])
    return offsets[best]


def _point(row: Row, work: Mapping[str, int]) -> tuple[float, float]:
    """Return operations for each byte, and TFLOP/s."""
    size = work["bytes"] / (2 if row.dtype == "float16" else 1)
    return work["flops"] / size, work["flops"] / (row.device_us or 1.0) / 1e6


def _roofline(
    pyplot: Any, rows: Sequence[Row], roofs: Mapping[str, Any] | None,
    models: Mapping[str, Mapping[str, int]], title: str,
) -> Any:  # fmt: skip
    """Return rates of vklab on the device against the operations for each byte.

    Args:
        pyplot: matplotlib's pyplot.
        rows: the rows.
        roofs: the roofs, as `Roofs.summary` returns them.
        models: operations and bytes by model.
        title: device and date.
    """
    shown = [
        row
        for row in rows
        if row.runner in ("vklab", "vklab-fp16")
        and row.device_us
        and models.get(row.model, {}).get("flops")
    ]
    if not shown or not roofs or not roofs.get("bytes_per_s"):
        return None
    figure, axes = pyplot.subplots(figsize=(10, 5.5), layout="constrained")
    moved = roofs["bytes_per_s"]
    across = np.logspace(-1, 4, 200)
    taken: list[tuple[float, float]] = []
    numbers = {model: n for n, model in enumerate(dict.fromkeys(row.model for row in shown), 1)}
    points = {(row.runner, row.model): _point(row, models[row.model]) for row in shown}
    for name, (colour, marker, _) in _style(["vklab", "vklab-fp16"]).items():
        dtype = "float16" if name.endswith("fp16") else "float32"
        roof = roofs["flops_per_s"].get(dtype)
        own = [row for row in shown if row.runner == name]
        if not own or not roof:
            continue
        axes.plot(
            across,
            np.minimum(across * moved, roof) / 1e12,
            color=colour,
            linewidth=1.5,
            label=f"roof in {dtype}: {roof / 1e12:.3g} TFLOP/s, {moved / 1e9:,.0f} GB/s",
        )
        for row in own:
            point = points[name, row.model]
            axes.plot(*point, marker, color=colour)
            axes.annotate(
                str(numbers[row.model]),
                point,
                fontsize=7,
                color=colour,
                xytext=(4, _free(taken, list(points.values()), *point)),
                textcoords="offset points",
            )
    for model, number in numbers.items():
        axes.plot([], [], " ", label=f"{number}: {model}")
    _name_axes(axes, title)
    return figure


def _name_axes(axes: Any, title: str) -> None:
    """Give a roofline its logarithmic axes, their units, and the legend beside them."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("operations for each byte of weights, inputs and outputs (FLOP/byte)")
    axes.set_ylabel("operations a second on the device (TFLOP/s)")
    axes.set_title(f"Roofline, {title}", fontsize=10)
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0))
